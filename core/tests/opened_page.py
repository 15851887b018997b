"""A page of a report or profile, opened: the script of the page runs in V8, in a minimal browser."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

py_mini_racer = pytest.importorskip("py_mini_racer")

__all__ = ["OpenedPage"]

# As much of a browser as the script asks for: elements are plain objects, and drawing is recorded.
BROWSER = """
const drawn = [];
function newElement(tag) {
  return {
    tag, children: [], attributes: {}, listeners: {}, style: {}, clientWidth: 800, clientHeight: 600,
    own: "", value: "", checked: true,
    get textContent() { return this.own + this.children.map((c) => c.textContent ?? c).join(""); },
    set textContent(text) { this.children = []; this.own = String(text); },
    setAttribute(key, value) { this.attributes[key] = value; },
    appendChild(child) { this.children.push(child); },
    append(text) { this.children.push(text); },
    replaceChildren() { this.children = []; this.own = ""; },
    addEventListener(name, act) { this.listeners[name] = act; },
    setPointerCapture() {},
    getContext() {
      return new Proxy({}, {
        get: (target, key) => key in target ? target[key] : (...given) => {
          if (key === "fillText") drawn.push([target.fillStyle, given[0], given[1], given[2]]);
          if (key === "lineTo") drawn.push(["line", given[0], given[1]]);
          if (key === "fill") drawn.push([target.fillStyle, target.globalAlpha]);
        },
        set: (target, key, value) => { target[key] = value; return true; },
      });
    },
  };
}
const elements = {};
const document = {
  body: newElement("body"),
  getElementById: (id) => elements[id] = elements[id] || newElement(id),
  createElement: newElement,
};
const observers = [];
class ResizeObserver {
  constructor(act) { this.act = act; }
  observe(element) { observers.push([element, this.act]); }
}
const window = { devicePixelRatio: 1, addEventListener() {}, ResizeObserver };
const requestAnimationFrame = (act) => act();
const getComputedStyle = () => ({ getPropertyValue: (name) => name });
function clickText(root, text) {
  if (typeof root === "string") return false;
  if (root.listeners.click && root.textContent.includes(text)) { root.listeners.click({}); return true; }
  return root.children.some((child) => clickText(child, text));
}
function clickOp(name) {
  const [, , x, y] = drawn.filter((d) => d[1] === name).pop();
  const at = { offsetX: OFFSET_X + x * SCALE, offsetY: OFFSET_Y + y * SCALE, pointerId: 1 };
  elements.canvas.listeners.pointerdown(at);
  elements.canvas.listeners.pointerup(at);
}
"""


class OpenedPage:
    """A page opened in a minimal browser.

    Args:
        html: the page, from :mod:`byoc_core.reporting.page`.
    """

    def __init__(self, html: str) -> None:
        self.html = html
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', self.html, re.DOTALL)
        self.data = json.loads(data)
        script = self.html.rpartition("<script>")[2].partition("</script>")[0]
        self._engine = py_mini_racer.MiniRacer()
        self._engine.eval(BROWSER)
        self._engine.eval(f"document.getElementById('data').own = {json.dumps(data)}; null")
        # The script keeps its view to itself; the browser must know where a point of the graph is on the screen.
        shown = script.replace("  function paint() {", "  function paint() { view_of(scale, offsetX, offsetY);")
        self._engine.eval(
            "let SCALE, OFFSET_X, OFFSET_Y; function view_of(s, x, y) { SCALE = s; OFFSET_X = x; OFFSET_Y = y; }"
        )
        self._engine.eval(f"{shown}; null")

    def read(self, code: str) -> Any:
        return json.loads(str(self._engine.eval(f"JSON.stringify({code})")))

    def act(self, code: str) -> None:
        self._engine.eval(f"{code}; null")

    @property
    def panel(self) -> str:
        return str(self._engine.eval("elements.panel.textContent"))
