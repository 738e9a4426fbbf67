"""The style of the report's sections, light and dark, narrow and wide.

All classes begin with `lr-`. The colours of series are those of Okabe and Ito (2008), two of
them darkened or lightened to stand out from the ground. What surrounds the sections, the page
of pytest-html, is given the same colours, and loses its least width of 800 pixels.
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
.lr-h4{font-size:14px;margin:12px 0 2px}
.lr-about,.lr-with,.lr-few,.lr-facts dt{color:var(--lr-muted)}
.lr-report .lr-about{color:var(--lr-muted);max-width:75ch}
.lr-with{font-size:11.5px}.lr-few{font-style:italic}
.lr-facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:1px 14px;margin:6px 0}
.lr-facts dd{margin:0;overflow-wrap:anywhere}
.lr-mono{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,monospace;font-size:12.5px}
.lr-sim{display:inline-block;font:600 11px/1.5 system-ui,Helvetica,Arial,sans-serif;
 color:var(--lr-sim-ink);border:1px dashed var(--lr-sim-ink);border-radius:3px;padding:0 5px;
 vertical-align:.1em;white-space:nowrap;background:repeating-linear-gradient(135deg,
 var(--lr-sim-ground) 0 5px,var(--lr-sim-stripe) 5px 7px)}
.lr-warn{border-left:4px solid var(--lr-fail);background:var(--lr-fail-ground);
 color:var(--lr-fail);padding:6px 12px;border-radius:4px;overflow-wrap:anywhere}
.lr-report p.lr-warn{color:var(--lr-fail)}
.lr-verdict{display:inline-block;border-radius:3px;padding:0 7px;font-weight:600;
 white-space:nowrap;border:1px solid transparent}
.lr-pass{color:var(--lr-pass);background:var(--lr-pass-ground)}
.lr-fail{color:var(--lr-fail);background:var(--lr-fail-ground);border-color:var(--lr-fail)}
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
.lr-number{display:block;min-width:238px}
.lr-id{display:block;min-width:17em}
.lr-table .lr-few{white-space:nowrap}
.lr-table .lr-fail+.lr-with{min-width:20em}
.lr-what{white-space:nowrap}
.lr-legend{display:flex;flex-wrap:wrap;gap:2px 20px;list-style:none;padding:0;margin:6px 0}
.lr-legend li{display:flex;gap:6px;align-items:center}
.lr-key{width:26px;height:8px;flex:none;display:inline-block;vertical-align:middle}
.lr-panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(290px,100%),1fr));
 gap:14px 22px}
.lr-panels figure,.lr-wiring figure{margin:0;min-width:0}
.lr-report figcaption{font-size:13px;color:var(--lr-muted)}
.lr-report figcaption b{color:var(--lr-ink)}
.lr-svg{display:block;width:100%;height:auto;max-width:100%;overflow:visible;
 font-family:system-ui,"Segoe UI",Helvetica,Arial,sans-serif;stroke-linejoin:round}
.lr-scroll>.lr-svg{max-width:none}
.lr-panels .lr-svg{max-width:400px}
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
.lr-circuit{stroke-width:1.6;fill:none}
.lr-of{display:none}
"""
_PAGE = """
body:has(.lr-report){min-width:0;margin:12px;background:var(--lr-page);color:var(--lr-muted)}
body:has(.lr-report) :is(h1,h2,p){color:var(--lr-ink)}
body:has(.lr-report) a{color:var(--lr-s0)}
body:has(.lr-report) .summary__data{min-width:0}
body:has(.lr-report) .summary{display:block}
@media (max-width:800px){body:has(.lr-report) :is(#environment,#results-table){display:block;
 overflow-x:auto;max-width:100%}}
body:has(.lr-report) :is(.logwrapper,.logexpander){background:var(--lr-soft)}
body:has(.lr-report) :is(.log,.logexpander,.logexpander:hover){color:var(--lr-ink);
 border-color:var(--lr-line)}
body:has(.lr-report) .log .error{color:var(--lr-fail)}
body:has(.lr-report) :is(span.passed,.passed .col-result){color:var(--lr-pass)}
body:has(.lr-report) :is(span.skipped,span.xfailed,span.rerun,.skipped .col-result,
 .xfailed .col-result,.rerun .col-result){color:var(--lr-sim-ink)}
body:has(.lr-report) :is(span.error,span.failed,span.xpassed,.error .col-result,
 .failed .col-result,.xpassed .col-result){color:var(--lr-fail)}
body:has(.lr-report) :is(.controls,.filters){flex-wrap:wrap}
body:has(.lr-report) #environment tr:nth-child(odd){background:var(--lr-soft)}
body:has(.lr-report) :is(#environment td,#results-table,#results-table td,#results-table th){
 border-color:var(--lr-line);color:var(--lr-muted)}
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
        f"{_SECTIONS}{picked}{_PAGE}</style>"
    )
