"""The style of the report's sections, light and dark, narrow and wide.

All classes begin with `lr-`. The colours of series are those of Okabe and Ito (2008), two of
them darkened or lightened to stand out from the ground.
"""

_LIGHT = """
--lr-ground:#fff;--lr-page:#f4f5f6;--lr-ink:#1b1f23;--lr-muted:#57606a;--lr-grid:#e3e6e9;
--lr-line:#d0d5da;--lr-soft:#f6f7f8;
--lr-s0:#0072b2;--lr-s1:#d55e00;--lr-s2:#009e73;--lr-s3:#b5578f;--lr-s4:#b98300;--lr-s5:#5b6470;
--lr-pass:#00664a;--lr-pass-ground:#dff3ec;--lr-fail:#a03400;--lr-fail-ground:#fde7d9;
--lr-sim-ink:#6b4e00;--lr-sim-stripe:#f3e3b3;--lr-sim-ground:#fdf6e0;
"""
_DARK = """
--lr-ground:#181c21;--lr-page:#0f1216;--lr-ink:#e4e8ec;--lr-muted:#a3adb8;--lr-grid:#2b3138;
--lr-line:#3a424b;--lr-soft:#20262c;
--lr-s0:#4aa8e0;--lr-s1:#f58a44;--lr-s2:#2fc79b;--lr-s3:#e09ac4;--lr-s4:#e8b83f;--lr-s5:#b4bec9;
--lr-pass:#7fe0c0;--lr-pass-ground:#123a2e;--lr-fail:#ffb48a;--lr-fail-ground:#4a2410;
--lr-sim-ink:#f0d488;--lr-sim-stripe:#4d3f17;--lr-sim-ground:#332b14;
"""
_SECTIONS = """
.lr-report{color:var(--lr-ink);font:14px/1.45 system-ui,"Segoe UI",Helvetica,Arial,sans-serif;
 text-align:left;max-width:1240px}
.lr-report p,.lr-report h2,.lr-report h3,.lr-report h4,.lr-report td,.lr-report th{color:inherit}
.lr-report p{margin:.25em 0 .6em}
.lr-head,.lr-card{background:var(--lr-ground);border:1px solid var(--lr-line);
 border-radius:8px;padding:14px 18px;margin:0 0 18px}
.lr-h2{font-size:22px;margin:0 0 2px}.lr-h3{font-size:17px;margin:26px 0 4px;
 border-top:1px solid var(--lr-line);padding-top:12px}
.lr-section>summary{cursor:pointer;border-top:1px solid var(--lr-line);padding:10px 0 4px}
.lr-section>summary .lr-h3{display:inline;border:0;margin:0;padding:0}
.lr-section>summary:hover{background:var(--lr-soft)}
.lr-contents ul{list-style:none;padding:0;margin:0 0 14px}.lr-contents li{padding:1px 0}
.lr-h4{font-size:14px;margin:12px 0 2px}
.lr-about,.lr-with,.lr-few,.lr-facts dt{color:var(--lr-muted)}
.lr-report .lr-about{color:var(--lr-muted);max-width:75ch}
.lr-with{font-size:11.5px}.lr-few{font-style:italic}
.lr-facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:1px 14px;margin:6px 0}
.lr-facts dd{margin:0;overflow-wrap:anywhere}
.lr-cause{border-top:1px solid var(--lr-grid);padding:8px 0;overflow-wrap:anywhere}
.lr-cause h3{font-size:16px;margin:0}.lr-cause ul{margin:0 0 .5em;padding-left:1.3em}
.lr-cause pre{white-space:pre-wrap;margin:.3em 0;background:var(--lr-soft);padding:4px 8px}
.lr-mono{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,monospace;font-size:12.5px}
.lr-sim{display:inline-block;font:600 11px/1.5 system-ui,Helvetica,Arial,sans-serif;
 color:var(--lr-sim-ink);border:1px dashed var(--lr-sim-ink);border-radius:3px;padding:0 5px;
 vertical-align:.1em;white-space:nowrap;background:repeating-linear-gradient(135deg,
 var(--lr-sim-ground) 0 5px,var(--lr-sim-stripe) 5px 7px)}
.lr-interval{display:block;width:150px;height:16px;margin:2px 0}
.lr-interval path{fill:none;stroke:var(--lr-s0);stroke-width:5}
.lr-interval circle{fill:var(--lr-ink)}
.lr-interval .lr-i-all{stroke-width:2;stroke-dasharray:3 2}
.lr-interval .lr-i-limit{stroke:var(--lr-fail);stroke-width:2}
.lr-warn{border-left:4px solid var(--lr-fail);background:var(--lr-fail-ground);
 color:var(--lr-fail);padding:6px 12px;border-radius:4px;overflow-wrap:anywhere}
.lr-note{border-left:4px solid var(--lr-sim-ink);padding:2px 12px;overflow-wrap:anywhere}
.lr-report p.lr-warn{white-space:pre-line;color:var(--lr-fail)}
.lr-verdict{display:inline-block;border-radius:3px;padding:0 7px;font-weight:600;
 white-space:nowrap;border:1px solid transparent}
.lr-pass{color:var(--lr-pass);background:var(--lr-pass-ground)}
.lr-fail{color:var(--lr-fail);background:var(--lr-fail-ground);border-color:var(--lr-fail)}
.lr-marginal{color:var(--lr-sim-ink);background:var(--lr-sim-ground);
 border-color:var(--lr-sim-ink)}
.lr-unknown{color:var(--lr-ground);background:var(--lr-ink)}
.lr-not{color:var(--lr-muted);background:var(--lr-soft);border-color:var(--lr-line)}
.lr-scroll{overflow-x:auto;max-width:100%;margin:4px 0 10px}
.lr-scroll:focus-visible{outline:2px solid var(--lr-s0)}
.lr-table{border-collapse:collapse;font-size:13px;min-width:100%;overflow-wrap:normal}
.lr-table .lr-mono{white-space:nowrap}
.lr-table th{text-align:left;font-weight:600;color:var(--lr-muted);white-space:nowrap}
.lr-table th,.lr-table td{padding:3px 14px 3px 0;border-bottom:1px solid var(--lr-grid);
 vertical-align:baseline}
.lr-table tr.lr-group td{background:var(--lr-soft);padding:5px 8px;border-top:1px solid
 var(--lr-line)}
.lr-table td:first-child{padding-left:8px}
.lr-table .lr-with>span{display:inline-block;white-space:nowrap}
.lr-table .lr-verdict+.lr-with{display:block}
.lr-number{display:block;min-width:200px}
.lr-id{display:block;min-width:17em}
.lr-table .lr-few{white-space:nowrap}
.lr-table .lr-fail+.lr-with{min-width:16em}
.lr-what{white-space:nowrap}
.lr-legend{display:flex;flex-wrap:wrap;gap:2px 20px;list-style:none;padding:0;margin:6px 0}
.lr-legend li{display:flex;gap:6px;align-items:center}
.lr-key{width:26px;height:8px;flex:none;display:inline-block;vertical-align:middle}
.lr-key path{stroke-width:3}
.lr-panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(290px,100%),1fr));
 gap:14px 22px}
.lr-panels figure,.lr-wiring figure{margin:0;min-width:0}
.lr-report figcaption{font-size:13px;color:var(--lr-muted)}
.lr-report figcaption b{color:var(--lr-ink)}
.lr-pick{position:absolute;opacity:0;pointer-events:none}
.lr-wiring{position:relative}
.lr-plans{display:flex;flex-wrap:wrap;gap:10px;margin:6px 0 12px}
.lr-plans label{flex:0 1 210px;border:1px solid var(--lr-line);border-radius:6px;padding:6px 10px;
 cursor:pointer;display:block}
.lr-links{max-width:190px;margin:2px auto}
.lr-box{fill:var(--lr-soft);stroke:var(--lr-line)}
.lr-node{fill:var(--lr-ground);stroke:var(--lr-muted)}
.lr-name{fill:var(--lr-ink);font-size:10.5px;font-weight:600;text-anchor:middle}
.lr-word{fill:var(--lr-muted);font-size:9.5px}
.lr-fiber{stroke:var(--lr-muted);stroke-width:.8;fill:none;opacity:.8}
.lr-circuit{stroke:var(--lr-k);stroke-width:1.6;fill:none}
.lr-link{stroke:var(--lr-k);stroke-width:1.8;fill:none}
.lr-of{display:none}
"""
_DRAWING = """
.lr-svg{display:block;width:100%;height:auto;max-width:100%;overflow:visible;
 font-family:system-ui,"Segoe UI",Helvetica,Arial,sans-serif;stroke-linejoin:round}
.lr-scroll>.lr-svg{max-width:none}
.lr-panels .lr-svg{max-width:400px}
.lr-svg .lr-t{fill:var(--lr-muted);font-size:9px}.lr-svg .lr-said{fill:var(--lr-ink)}
.lr-mid{text-anchor:middle}.lr-end{text-anchor:end}
.lr-grid{stroke:var(--lr-grid);stroke-width:.6;fill:none}
.lr-axis{stroke:var(--lr-muted);stroke-width:.7;fill:none}
.lr-rule{stroke:var(--lr-ink);stroke-dasharray:3 2;fill:none}
.lr-line{stroke:var(--lr-k);stroke-width:1.5;fill:none}
.lr-area{stroke:var(--lr-k);stroke-width:1.1;fill:var(--lr-k);fill-opacity:.16}
.lr-faint{stroke:var(--lr-k);stroke-width:1.1;fill:var(--lr-k);fill-opacity:.07}
.lr-band{fill:var(--lr-k);fill-opacity:.16;stroke:none}
.lr-range{stroke:var(--lr-k);stroke-width:1.5;fill:none}
.lr-bar{stroke:var(--lr-k);fill:var(--lr-k)}
.lr-dot{stroke:var(--lr-k);stroke-width:5;stroke-linecap:round;fill:none}
.lr-frame{fill:none;stroke:var(--lr-line)}.lr-told{fill:transparent}
.lr-told:hover{stroke:var(--lr-ink);stroke-width:1.5}
.lr-k0{--lr-k:var(--lr-s0)}.lr-k1{--lr-k:var(--lr-s1)}.lr-k2{--lr-k:var(--lr-s2)}
.lr-k3{--lr-k:var(--lr-s3)}.lr-k4{--lr-k:var(--lr-s4)}.lr-k5{--lr-k:var(--lr-s5)}
:is(.lr-line,.lr-area,.lr-faint,.lr-bar).lr-d1{stroke-dasharray:4 2}
:is(.lr-line,.lr-area,.lr-faint,.lr-bar).lr-d2{stroke-dasharray:1 1.5}
:is(.lr-line,.lr-area,.lr-faint,.lr-bar).lr-d3{stroke-dasharray:6 1.5 1 1.5}
.lr-bar:is(.lr-d1,.lr-d2,.lr-d3){fill-opacity:.2}
.lr-print{stroke:var(--lr-ink);fill:var(--lr-ground);stroke-width:1.3}
.lr-whisker{stroke:var(--lr-ink);stroke-width:1;fill:none}
"""
_PAGE = """
.lr-page{margin:0;padding:16px;background:var(--lr-page);color:var(--lr-ink);
 font:14px/1.45 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
.lr-page>*{max-width:1240px;margin-left:auto;margin-right:auto}
.lr-page a{color:var(--lr-s0)}
.lr-title h1{font-size:26px;margin:0}.lr-title p{margin:0 0 12px;color:var(--lr-muted)}
.lr-overview ul{list-style:none;padding:0;margin:0 0 10px}
.lr-counts{display:flex;flex-wrap:wrap;gap:6px 10px;align-items:center}
.lr-wrong,.lr-undecided{border-left:4px solid var(--lr-fail);overflow-wrap:anywhere}
.lr-undecided{border-color:var(--lr-sim-ink);margin-top:6px}
.lr-wrong li,.lr-undecided li{padding:1px 0 1px 10px}
.lr-outcome{display:inline-block;border-radius:3px;padding:0 7px;font-weight:600;
 white-space:nowrap;color:var(--lr-ink);background:var(--lr-soft);border:1px solid var(--lr-line)}
.lr-outcome.lr-o-passed{color:var(--lr-pass);background:var(--lr-pass-ground)}
.lr-outcome:is(.lr-o-failed,.lr-o-error){color:var(--lr-fail);background:var(--lr-fail-ground);
 border-color:var(--lr-fail)}
.lr-outcome:is(.lr-o-xpassed,.lr-o-rerun,.lr-o-inconclusive){color:var(--lr-sim-ink);
 background:var(--lr-sim-ground);border-color:var(--lr-sim-ink)}
.lr-controls{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center;margin:8px 0}
.lr-filters{display:flex;flex-wrap:wrap;gap:4px 14px}
.lr-controls label{white-space:nowrap}.lr-filter{cursor:pointer}
.lr-page :is(input,select,button){font:inherit;color:inherit;background:var(--lr-soft);
 border:1px solid var(--lr-line);border-radius:4px;padding:2px 8px}
.lr-page button{cursor:pointer}.lr-page :is(a,input,select,button,summary,pre):focus-visible{
 outline:2px solid var(--lr-s0);outline-offset:1px}
#lr-search{width:min(22em,60vw)}#lr-shown{color:var(--lr-muted)}
.lr-card>summary{cursor:pointer;font-weight:600}
.lr-test{border-top:1px solid var(--lr-grid);overflow-wrap:anywhere}
.lr-test>summary{display:grid;grid-template-columns:9.5em minmax(0,1fr) max-content;gap:0 10px;
 align-items:baseline;padding:4px 2px;cursor:pointer;list-style:none}
.lr-test>summary::-webkit-details-marker{display:none}
.lr-test>summary:hover{background:var(--lr-soft)}
.lr-why{grid-column:2;grid-row:2;color:var(--lr-muted);font-size:12.5px}
.lr-test[open]>summary>.lr-why{display:none}
.lr-took{color:var(--lr-muted);grid-column:3;grid-row:1;font-variant-numeric:tabular-nums}
.lr-test-body{padding:2px 0 12px 10px;border-left:3px solid var(--lr-line)}
.lr-report .lr-why-whole{white-space:pre-wrap;font-weight:600}
.lr-command{display:flex;gap:8px;align-items:start;margin:4px 0}
.lr-command code{flex:1;min-width:0;padding:4px 8px;background:var(--lr-soft);border-radius:4px;
 font:12.5px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,monospace}
.lr-log{margin:6px 0;padding:6px 8px;max-height:24em;overflow:auto;background:var(--lr-soft);
 border-radius:4px;font:12px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,monospace;
 white-space:pre-wrap}
.lr-wire .lr-log{white-space:pre}.lr-wire>summary{cursor:pointer}.lr-e{color:var(--lr-fail)}
.lr-extra{overflow-x:auto}.lr-extra :is(img,video){max-width:100%}
.lr-extra>.lr-svg{max-width:560px}
.lr-figures{display:flex;flex-wrap:wrap;gap:14px 26px}
.lr-figures figure{margin:6px 0;min-width:0}.lr-wide{flex:0 1 560px}.lr-full{flex:1 1 100%}
.lr-narrow{flex:0 1 380px}
#lr-more{margin:8px auto;display:block}#lr-more[hidden]{display:none}
@media (max-width:600px),print{#lr-answers thead{display:none}
.lr-table .lr-with span{white-space:normal}
#lr-answers td[data-head]::before{content:attr(data-head) ": ";color:var(--lr-muted)}
#lr-answers :is(table,tbody,tr,td){display:block;border:0;padding:0;overflow-wrap:anywhere}
#lr-answers tr{border-top:1px solid var(--lr-line);padding:6px 0}
.lr-page{padding:8px}.lr-head,.lr-card{padding:10px 12px}
.lr-test>summary{grid-template-columns:minmax(0,1fr) max-content}
.lr-test-name{grid-column:1/3;grid-row:2}.lr-why{grid-column:1/3;grid-row:3}
.lr-took{grid-column:2}.lr-test .lr-outcome{justify-self:start}.lr-command{flex-direction:column}
.lr-command code{align-self:stretch}}
"""


def style(plans: int) -> str:
    """The viewport and style elements for a report whose testbeds have up to `plans` plans."""
    picked = "".join(
        f".lr-pick{i}:checked~.lr-scroll .lr-p{i}{{display:inline}}"
        f".lr-pick{i}:checked~.lr-plans .lr-l{i}{{border-color:var(--lr-ink);"
        f"box-shadow:inset 0 0 0 1px var(--lr-ink)}}"
        f".lr-pick{i}:focus-visible~.lr-plans .lr-l{i}{{outline:2px solid var(--lr-s0);"
        f"outline-offset:2px}}"
        for i in range(plans)
    )
    # Without a viewport a telephone lays the page out for a desk.
    return (
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>:root{{color-scheme:light dark;{_LIGHT}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
        f"{_SECTIONS}{_DRAWING}{picked}</style>"
    )


def drawing_style() -> str:
    """The style element of a drawing that stands alone, light and dark."""
    return (
        f"<style>svg{{color-scheme:light dark;{_LIGHT}}}"
        f"@media (prefers-color-scheme:dark){{svg{{{_DARK}}}}}{_DRAWING}</style>"
    )


def figure_style() -> str:
    """The rules of one figure of class `lr-figure`, which change nothing else of a page."""
    return (
        f".lr-figure{{color-scheme:light dark;{_LIGHT}}}"
        f"@media (prefers-color-scheme:dark){{.lr-figure{{{_DARK}}}}}{_SECTIONS}"
    )


def page_style(css: str = "") -> str:
    """The style element of a whole page around a report's sections; `css` comes last."""
    return f"<style>{_PAGE}{css}</style>"
