"""How a page looks, in light and dark."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--page:#fff;--line:#d0d7de;--strong:#b3005e;
--pane:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--page:#010409;--line:#3d444d;
--strong:#ff8ac4;--pane:#0d1117}}
*{box-sizing:border-box} body{margin:0 auto;max-width:1600px;padding:10px 12px 40px;background:var(--page);
color:var(--ink);font:15px/1.45 "DejaVu Sans",Verdana,"Segoe UI",sans-serif}
h1{font-size:21px;line-height:1.25;margin:4px 0;color:var(--strong)} h2{font-size:17px;margin:26px 0 6px}
p{margin:4px 0;max-width:75em} .what{color:var(--soft);font-size:13px}
.beside{display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start;margin-top:8px}
figure{margin:0;overflow-x:auto;max-width:100%} svg{display:block}
table{border-collapse:collapse;font-size:14px} th,td{text-align:left;vertical-align:top;padding:4px 12px 4px 0;
border-bottom:1px solid var(--line)} th{color:var(--soft);font-weight:normal} a{color:inherit}
td.effect{color:var(--strong);font-weight:bold} tr.breaks{outline:2px solid var(--strong)}
tr.fault td:nth-child(3){font-weight:bold} tr:target{background:#f5c84240} tr.fold{color:var(--soft)}
pre{background:var(--pane);border:1px solid var(--line);border-radius:6px;padding:10px 12px;overflow-x:auto;
font:13px/1.4 "DejaVu Sans Mono",Consolas,monospace} code{font:13px "DejaVu Sans Mono",Consolas,monospace}
"""
