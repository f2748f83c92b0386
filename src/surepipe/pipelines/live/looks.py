"""How the page looks, and the few lines of script that renew it."""

from __future__ import annotations

PAGE_STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--page:#fff;--line:#d0d7de;--pane:#f6f8fa;
--good:#116329;--warn:#9a6700;--warnpane:#fff8c5;--bad:#a40e26}
@media (prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--page:#0d1117;--line:#3d444d;
--pane:#161b22;--good:#56d364;--warn:#e3b341;--warnpane:#272115;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1400px;padding:12px 16px 40px;background:var(--page);color:var(--ink);
font:15px/1.45 "DejaVu Sans",Verdana,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;color:var(--soft);font-size:13px}
h1{font-size:22px;line-height:1.2;margin:0;color:var(--ink);overflow-wrap:anywhere}
h2{font-size:16px;margin:24px 0 6px}
.state{border:1px solid currentColor;border-radius:10px;padding:0 10px;font-weight:bold}
.running{color:var(--good)} .starting,.stopping,.silentstore{color:var(--warn)}
.store{font-weight:normal} .store.silentstore{font-weight:bold}
svg.past{display:block;width:100%;height:28px;margin-top:4px}
.past polyline{fill:none;stroke:var(--soft);stroke-width:1.5;vector-effect:non-scaling-stroke}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:8px;margin:12px 0}
.tiles div{border:1px solid var(--line);border-radius:8px;background:var(--pane);padding:8px 12px}
.tiles dt{color:var(--soft);font-size:12px} .tiles dd{margin:0;font-size:24px;font-weight:bold;line-height:1.2}
.tiles .warn{border-color:var(--warn);background:var(--warnpane)} .tiles .warn dd{color:var(--warn)}
figure{margin:0;overflow-x:auto;border:1px solid var(--line);border-radius:8px}
figure svg{display:block;margin:0 auto}
figure:not(.scrolls) svg{max-width:max(100%,1200px);height:auto}
figure svg .page{fill:none} svg text.promise{font-size:12px} svg .under{fill:var(--page)}
svg text.live,svg text.flow{fill:var(--ink);font-variant-numeric:tabular-nums;white-space:pre}
svg text.flow{font-weight:bold} svg .pipe.warn .box{stroke:var(--warn);stroke-width:3} svg .away{opacity:.55}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:right;vertical-align:top;padding:6px 0 6px 12px;border-bottom:1px solid var(--line);
font-weight:normal} td{white-space:nowrap} .few td{white-space:normal}
thead th{color:var(--soft);font-size:12px;vertical-align:bottom} tr>:first-child{text-align:left;padding-left:0}
tbody th{font-weight:bold;overflow-wrap:anywhere} th small{display:block;font-weight:normal;font-size:12px;
color:var(--soft);max-width:44em} th small b{color:var(--good)}
.few :is(td,th){text-align:left} td.nil{color:var(--soft)} tr.warn th{color:var(--warn)} tr.away{color:var(--soft)}
ol{padding:0;margin:0;list-style:none;font-size:13px} li{padding:4px 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere} time{color:var(--soft)} footer{margin-top:24px;font-size:12px;color:var(--soft)}
a{color:inherit} #silent{border:2px solid var(--bad);border-radius:8px;color:var(--bad);padding:6px 12px;
margin:0 0 12px}
.silent main{opacity:.6}
@media (max-width:760px){
figure{max-height:75vh;overflow:auto}
.tiles div:first-child{grid-column:1/-1}
.cards thead{position:absolute;left:-9999px} .cards,.cards tbody{display:block}
.cards tr{display:grid;grid-template-columns:repeat(2,1fr);column-gap:16px;border:1px solid var(--line);
border-radius:8px;padding:6px 12px;margin-bottom:8px}
.cards tbody :is(th,td){display:flex;justify-content:space-between;gap:8px;padding:3px 0;border:0}
.cards tbody th{grid-column:1/-1;display:block;border-bottom:1px solid var(--line);margin-bottom:4px}
.cards td::before{content:attr(data-is);color:var(--soft)}}
@media (max-width:360px){.cards tr{grid-template-columns:minmax(0,1fr)}}
"""

PAGE_SCRIPT = """'use strict';
const every = 1000;
function put(fresh) {
  const old = document.getElementById('live'), next = fresh.getElementById('live');
  const {scrollLeft, scrollTop} = old.querySelector('figure');
  old.replaceWith(document.importNode(next, true));
  document.querySelector('figure').scrollTo(scrollLeft, scrollTop);
  document.title = fresh.title;
}
function silent(is) {
  document.getElementById('silent').hidden = !is;
  document.body.classList.toggle('silent', is);
}
async function renew() {
  const busy = document.hidden || getSelection().type === 'Range';
  if (!busy) {
    try {
      const answer = await fetch('/', {cache: 'no-store', signal: AbortSignal.timeout(5000)});
      if (!answer.ok) throw new Error(answer.statusText);
      put(new DOMParser().parseFromString(await answer.text(), 'text/html'));
      silent(false);
    } catch {
      silent(true);
    }
  }
  setTimeout(renew, every);
}
setTimeout(renew, every);
"""
