"""How the page of an audit looks, in light and dark: the colours of the other pages."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--page:#fff;--line:#d0d7de;--pane:#f6f8fa;
--good:#116329;--warn:#9a6700;--bad:#a40e26;--badpane:#ffebe9;--flow:#54aeff}
@media (prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--page:#0d1117;--line:#3d444d;
--pane:#161b22;--good:#56d364;--warn:#e3b341;--bad:#ff7b72;--badpane:#2d1214;--flow:#1f6feb}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:16px 20px 40px;background:var(--page);color:var(--ink);
font:15px/1.45 "DejaVu Sans",Verdana,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:22px;line-height:1.2;margin:0} h2{font-size:16px;margin:28px 0 8px} h3{font-size:15px;margin:0}
p{margin:4px 0} .what{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.what b{font-weight:normal;color:var(--ink)}
.verdict{font-size:18px;font-weight:bold} .good{color:var(--good)} .warn{color:var(--warn)} .bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:8px;margin:14px 0}
.tiles div{border:1px solid var(--line);border-radius:8px;background:var(--pane);padding:8px 12px}
.tiles dt{color:var(--soft);font-size:12px} .tiles dd{margin:0;font-size:22px;font-weight:bold;line-height:1.25;
color:var(--ink)} .tiles .bad{border-color:var(--bad);background:var(--badpane)} .tiles .bad dd{color:var(--bad)}
figure{margin:0;overflow-x:auto;border:1px solid var(--line);border-radius:8px;padding:8px}
figure svg{display:block;width:100%;min-width:660px;height:auto}
svg text{fill:var(--ink);font-size:13px} svg .soft{fill:var(--soft)}
svg .flow{fill:var(--flow)} svg .lost{fill:var(--bad)} svg .dead{fill:var(--warn)} svg .wait{fill:var(--soft)}
svg .again{fill:#bf5af2} svg .late{fill:#d4922a} svg .axis{stroke:var(--line)}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:8px}
section{border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.atoms{display:flex;flex-wrap:wrap;gap:4px 8px;font-size:13px}
.atoms span{border:1px solid currentColor;border-radius:10px;padding:0 10px}
ul{margin:6px 0 0;padding-left:20px;font-size:13px} li{overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:right;vertical-align:top;padding:6px 0 6px 12px;border-bottom:1px solid var(--line);
font-weight:normal} td{white-space:nowrap} thead th{color:var(--soft);font-size:12px;vertical-align:bottom}
tr>:first-child{text-align:left;padding-left:0} tbody th{font-weight:bold;overflow-wrap:anywhere}
td{color:var(--ink)} td.nil{color:var(--soft)} footer{margin-top:24px;font-size:12px;color:var(--soft)}
@media (max-width:760px){body{padding:12px}
.tiles{grid-template-columns:repeat(2,1fr)}
.cards thead{position:absolute;left:-9999px} .cards,.cards tbody{display:block}
.cards tr{display:grid;grid-template-columns:repeat(2,1fr);column-gap:16px;border:1px solid var(--line);
border-radius:8px;padding:6px 12px;margin-bottom:8px}
.cards tbody :is(th,td){display:flex;justify-content:space-between;gap:8px;padding:3px 0;border:0}
.cards tbody th{grid-column:1/-1;display:block;border-bottom:1px solid var(--line);margin-bottom:4px}
.cards td::before{content:attr(data-is);color:var(--soft)}}
"""
