"""What the nights' page adds to the report's style; all its classes begin with `ln-`."""

STYLE = """
.ln-line,.ln-level,.ln-p99,.ln-change,.ln-at,.ln-event path{fill:none}
.ln-p99{stroke:var(--lr-s2);stroke-width:1.3;stroke-dasharray:1.5 2}
.ln-level{stroke:var(--lr-s1);stroke-width:1.2;opacity:.9}
.ln-drift{stroke:var(--lr-s3);stroke-width:1.6;stroke-dasharray:6 3;fill:none}
.ln-drifts,.ln-chip.ln-drifts{color:var(--lr-s3);border-color:var(--lr-s3);font-weight:600}
.ln-change{stroke:var(--lr-s1);stroke-width:1.4}.ln-way{fill:var(--lr-s1)}
.lr-svg .ln-far{fill:var(--lr-s1);font-weight:700;font-size:10px}
.ln-event path{stroke:var(--lr-muted);stroke-width:1;stroke-dasharray:1 2.5}
.lr-svg .ln-event text{fill:var(--lr-ink);font-weight:600;paint-order:stroke;
 stroke:var(--lr-ground);stroke-width:3px}
.ln-none{fill:var(--lr-grid)}
.ln-at{stroke:var(--lr-ink);stroke-width:1;opacity:.7}
.ln-by{color:var(--lr-s1);font-weight:600;white-space:nowrap}
.ln-when{font-size:15px;margin:14px 0 4px;border-top:1px solid var(--lr-grid);padding-top:10px}
.ln-occasion ul{margin:.2em 0 .5em;padding-left:1.3em}
.ln-events{list-style:none;padding:0;margin:4px 0 8px}
.ln-letter{display:inline-block;min-width:1.2em}
.ln-nights{margin:2px 0 10px}.ln-nights ol{list-style:none;padding:0;columns:18em;margin:6px 0}
.ln-nights li{break-inside:avoid;overflow-wrap:anywhere}
.ln-legend{font-size:12.5px;color:var(--lr-muted);margin:0 2px 12px}
.ln-key{width:30px;height:16px;flex:none}
.ln-controls{position:sticky;top:0;z-index:2;background:var(--lr-ground);margin:0 0 14px;
 border:1px solid var(--lr-line);border-radius:8px;padding:8px 14px}
.ln-controls[hidden]{display:none}
#ln-find{width:min(20em,52vw)}#ln-count{color:var(--lr-muted)}
.ln-quantity{border-top:1px solid var(--lr-grid);scroll-margin-top:70px}
.ln-quantity>summary{display:grid;grid-template-columns:minmax(0,21em) 132px 6em minmax(0,1fr);
 gap:2px 14px;align-items:center;padding:4px 2px;cursor:pointer;list-style:none;
 overflow-wrap:anywhere}
.ln-quantity>summary::-webkit-details-marker{display:none}
.ln-quantity>summary:hover{background:var(--lr-soft)}
.ln-quantity>summary>b::before{content:"▸";display:inline-block;width:1.1em;color:var(--lr-muted)}
.ln-quantity[open]>summary>b::before{content:"▾"}
.ln-quantity>summary .lr-svg{width:132px}
.ln-chip{display:inline-block;border:1px solid var(--lr-s1);border-radius:3px;padding:0 7px;
 font-weight:600;font-size:12.5px;color:var(--lr-s1);white-space:nowrap}
.ln-figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
 gap:14px 26px;padding:6px 0 18px}
.ln-figures figure{margin:0;min-width:0;scroll-margin-top:70px;display:flex;flex-direction:column}
.ln-figures figcaption{flex:1}.ln-plot,.ln-told{flex:none}
.ln-figures figure:target{outline:2px solid var(--lr-s1);outline-offset:6px;border-radius:2px}
.ln-figures figcaption{overflow-wrap:anywhere}
.ln-figures .lr-number{display:inline;min-width:0}
.ln-plot{touch-action:pan-y;cursor:crosshair;max-width:470px}
.ln-plot:focus-visible{outline:2px solid var(--lr-s0);outline-offset:2px}
.ln-told{display:block;font-size:12.5px;min-height:2.9em;overflow-wrap:anywhere}
.ln-changes{list-style:none;padding:0;margin:4px 0 8px}.ln-occasion .ln-changes{padding:0}
.ln-changes li{display:grid;grid-template-columns:minmax(0,17em) minmax(0,22em) minmax(0,1fr) 13em;
 gap:0 16px;padding:3px 0;border-top:1px solid var(--lr-grid);align-items:baseline;
 overflow-wrap:anywhere}
.ln-levels>span{white-space:nowrap}
@media (max-width:900px){.ln-changes li{grid-template-columns:minmax(0,1fr);padding:6px 0}}
@media (max-width:600px){.ln-told{min-height:0}.ln-controls{position:static}
.ln-quantity>summary{grid-template-columns:132px 5em minmax(0,1fr)}
.ln-quantity>summary>b{grid-column:1/-1}
.ln-quantity,.ln-figures figure{scroll-margin-top:8px}}
"""
