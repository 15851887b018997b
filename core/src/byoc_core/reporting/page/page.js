"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ops = data.ops;
  const canvas = document.getElementById("canvas");
  const pen = canvas.getContext("2d");
  const panel = document.getElementById("panel");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const WIDTH = 150, HEIGHT = 36, STEP_X = 174, STEP_Y = 72, READABLE = 0.45;
  const GREY = "#9aa3ad", TEXT = "#10151b";  // each hue is light enough for dark text
  const HUES = ["#56b4e9", "#e69f00", "#00a878", "#d98cb8", "#f0e442", "#e8702a", "#a99bf5", "#b8d48a"];

  const colours = new Map();
  data.backends.forEach((backend, index) => {
    colours.set(backend.name, backend.name === data.host ? GREY : HUES[index % HUES.length]);
  });
  const hidden = new Set();
  let filter = null;
  let selected = -1;
  let scale = 1, offsetX = 0, offsetY = 0;

  const readers = ops.map(() => []);
  ops.forEach((op, index) => op.sources.forEach((source) => readers[source].push(index)));
  const byName = new Map();
  ops.forEach((op, index) => {
    const key = op.function + "\0" + op.name;
    if (!byName.has(key)) byName.set(key, index);
  });
  const rows = new Map();  // the ops of each layer, so that only what is in view is drawn
  ops.forEach((op, index) => {
    if (!rows.has(op.layer)) rows.set(op.layer, []);
    rows.get(op.layer).push(index);
  });
  const longest = ops.reduce((most, op) => op.sources.reduce((m, s) => Math.max(m, op.layer - ops[s].layer), most), 1);

  const isLit = (op) => !hidden.has(op.outcome) && (filter === null || filter(op));
  const percent = (share) => (typeof share === "number" ? (100 * share).toFixed(1) + "%" : "?");
  const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");
  const heat = data.heat ? makeHeat(data, { add, row, onUse, percent, light, opAt: indexButton }) : null;
  let isHot = heat !== null;  // colours are times, not backends
  const colourOf = (op) => (isHot ? heat.colourOf(op) : colours.get(op.outcome) || GREY);

  function add(parent, tag, text, attributes) {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    parent.appendChild(element);
    return element;
  }

  // ---- drawing

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    draw();
  }

  let isPending = false;
  function draw() {
    if (isPending) return;
    isPending = true;
    requestAnimationFrame(() => { isPending = false; paint(); });
  }

  function visible() {
    const first = Math.floor((-offsetY / scale - HEIGHT) / STEP_Y);
    const last = Math.ceil((canvas.clientHeight - offsetY) / scale / STEP_Y);
    const left = -offsetX / scale - WIDTH, right = (canvas.clientWidth - offsetX) / scale;
    return { first, last, left, right };
  }

  function paint() {
    const style = getComputedStyle(document.body);
    const ink = style.getPropertyValue("--ink"), line = style.getPropertyValue("--edge"), mark = style.getPropertyValue("--mark");
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    pen.translate(offsetX, offsetY);
    pen.scale(scale, scale);
    const view = visible();
    const region = selected >= 0 ? ops[selected].region : null;
    for (let layer = view.first; layer <= view.last + Math.min(longest, 60); layer++) {
      for (const index of rows.get(layer) || []) drawEdges(index, view, line, ink);
    }
    for (let layer = view.first; layer <= view.last; layer++) {
      for (const index of rows.get(layer) || []) {
        const x = ops[index].column * STEP_X;
        if (x >= view.left && x <= view.right) drawOp(index, region, ink, mark);
      }
    }
  }

  function drawEdges(index, view, line, ink) {
    const op = ops[index];
    const x = op.column * STEP_X + WIDTH / 2, y = op.layer * STEP_Y;
    for (const source of op.sources) {
      const other = ops[source];
      if (other.layer > view.last) continue;
      const fromX = other.column * STEP_X + WIDTH / 2, fromY = other.layer * STEP_Y + HEIGHT;
      const span = op.layer - other.layer;
      const isNear = source === selected || index === selected;
      pen.strokeStyle = isNear ? ink : line;
      pen.lineWidth = (isNear ? 2 : 1.2) / Math.max(scale, 0.3);
      pen.beginPath();
      pen.moveTo(fromX, fromY);
      if (span > 1) {
        const lane = laneOf(index, source, fromX, x), gap = STEP_Y - HEIGHT;
        pen.bezierCurveTo(fromX, fromY + gap * 0.7, lane, fromY + gap * 0.3, lane, fromY + gap);
        pen.lineTo(lane, y - gap);
        pen.bezierCurveTo(lane, y - gap * 0.3, x, y - gap * 0.7, x, y);
      } else {
        pen.bezierCurveTo(fromX, fromY + 24, x, y - 24, x, y);
      }
      pen.stroke();
    }
  }

  // Where an edge over several layers runs down: beside its ends, if possible where no op of those layers covers it.
  const lanes = new Map();
  function laneOf(index, source, fromX, x) {
    const key = index + "," + source;
    if (!lanes.has(key)) {
      const first = ops[source].layer + 1, last = Math.min(ops[index].layer, first + 100);
      const side = STEP_X / 2;
      const candidates = [x, fromX, x + side, x - side, fromX + side, fromX - side, x + 2 * side, x - 2 * side];
      const isFree = (lane) => {
        for (let layer = first; layer < last; layer++) {
          if ((rows.get(layer) || []).some((other) => Math.abs(ops[other].column * STEP_X + WIDTH / 2 - lane) < WIDTH / 2 + 3)) return false;
        }
        return true;
      };
      lanes.set(key, candidates.find(isFree) ?? x + side);
    }
    return lanes.get(key);
  }

  function drawOp(index, region, ink, mark) {
    const op = ops[index];
    const x = op.column * STEP_X, y = op.layer * STEP_Y;
    pen.globalAlpha = isLit(op) ? 1 : 0.16;
    pen.fillStyle = colourOf(op);
    pen.beginPath();
    if (pen.roundRect) pen.roundRect(x, y, WIDTH, HEIGHT, 7); else pen.rect(x, y, WIDTH, HEIGHT);
    pen.fill();
    if (index === selected || (region && op.region === region)) {
      pen.strokeStyle = index === selected ? ink : mark;
      pen.lineWidth = (index === selected ? 3 : 2) / Math.max(scale, 0.4);
      pen.stroke();
    }
    if (scale >= READABLE) {
      pen.fillStyle = TEXT;
      pen.textBaseline = "middle";
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(clip(op.op, 21), x + 8, y + HEIGHT / 2 - 7);
      pen.font = "11px ui-monospace, monospace";
      const label = clip(isHot ? heat.label(op) : op.outcome, 10);
      pen.fillText(clip(op.name, 19 - label.length), x + 8, y + HEIGHT / 2 + 8);
      pen.textAlign = "right";
      pen.fillText(label, x + WIDTH - 8, y + HEIGHT / 2 + 8);
      pen.textAlign = "left";
    }
    pen.globalAlpha = 1;
  }

  const clip = (text, length) => (text.length > length ? text.slice(0, length - 1) + "\u2026" : text);

  // ---- the panel

  function opButton(parent, functionName, name) {
    const index = byName.get(functionName + "\0" + name);
    if (index === undefined) add(parent, "code", name); else indexButton(parent, index, name);
  }

  function indexButton(parent, index, text) {
    const button = add(parent, "button", text, { class: "op", type: "button" });
    button.addEventListener("click", () => select(index, true));
  }

  function opList(parent, functionName, names) {
    names.forEach((name, position) => {
      if (position) parent.append(", ");
      opButton(parent, functionName, name);
    });
  }

  function row(table, label, value) {
    const line = add(table, "tr");
    add(line, "th", label, { scope: "row" });
    const cell = add(line, "td");
    if (typeof value === "function") value(cell); else cell.textContent = value;
  }

  function showOp(index) {
    const op = ops[index];
    panel.replaceChildren();
    const title = add(panel, "h2");
    add(title, "span", null, { class: "swatch" }).style.background = colourOf(op);
    title.append(op.op + " ");
    add(title, "code", op.name);
    const table = add(add(panel, "table"), "tbody");
    row(table, "runs on", op.outcome);
    if (op.region) row(table, "region", (cell) => {
      const button = add(cell, "button", op.region, { class: "op", type: "button" });
      button.addEventListener("click", () => setFilter((other) => other.region === op.region, "region " + op.region));
    });
    if (op.composite) row(table, "pattern", op.composite);
    row(table, "function", op.function);
    if (op.location) row(table, "origin", op.location);
    if (heat) heat.addTime(table, index);
    row(table, "FLOPs", op.flops + " (" + percent(op.share) + ")");
    if (op.inputs.length) row(table, "reads", (cell) => opList(cell, op.function, op.inputs));
    const makers = op.sources.map((source) => ops[source].name).filter((name) => !op.inputs.includes(name));
    if (makers.length) row(table, "made by", (cell) => opList(cell, op.function, makers));
    if (readers[index].length) row(table, "read by", (cell) => {
      opList(cell, op.function, readers[index].slice(0, 20).map((reader) => ops[reader].name));
      if (readers[index].length > 20) cell.append(" and " + (readers[index].length - 20) + " more");
    });
    const isTaken = op.outcome !== data.host;
    if (isTaken && op.text) add(panel, "p", op.text, { class: "plain" });
    add(panel, "h2", isTaken ? "Reasons against other backends" : "Reasons for staying on the host");
    if (!op.reasons.length) add(panel, "p", (!isTaken && op.text) || "No earlier backend refused the op.", { class: "plain" });
    for (const reason of op.reasons) {
      const box = add(panel, "div", null, { class: "reason" });
      box.style.borderColor = colours.get(reason.backend) || "";
      add(box, "strong", reason.backend);
      if (reason.pattern) { box.append(", pattern "); add(box, "code", reason.pattern); }
      add(box, "div", reason.text);
      if (reason.ops.length) { const list = add(box, "div", "ops: "); opList(list, op.function, reason.ops); }
      add(box, "div", reason.code, { class: "code" });
    }
    const borders = data.borders.filter((border) => op.region && (border.before === op.region || border.after === op.region));
    if (borders.length) add(panel, "h2", "Why the region ends");
    for (const border of borders.slice(0, 50)) {
      const box = add(panel, "div", null, { class: "reason" });
      add(box, "div", border.before + " and " + border.after + ": " + border.text);
      if (border.ops.length) { const list = add(box, "div", "ops: "); opList(list, op.function, border.ops); }
      add(box, "div", border.code, { class: "code" });
    }
    const back = add(panel, "p");
    add(back, "button", "All ops", { class: "op", type: "button" }).addEventListener("click", () => select(-1, false));
  }

  function showSummary() {
    panel.replaceChildren();
    add(panel, "h2", "Assignment of ops");
    const backends = newTable(["", "share", "ops", "regions"]);
    for (const backend of data.backends) {
      const line = add(backends, "tr", null, { "data-filter": "" });
      const cell = add(line, "td");
      add(cell, "span", null, { class: "swatch" }).style.background = colours.get(backend.name);
      cell.append(backend.name);
      for (const value of [percent(backend.share), backend.ops, backend.regions]) add(line, "td", value, { class: "number" });
      onUse(line, () => setFilter((op) => op.outcome === backend.name, backend.name));
    }
    add(panel, "h2", "Why ops stayed on the host");
    if (!data.summary.length) add(panel, "p", "No op stayed on the host.", { class: "plain" });
    const reasons = newTable(["reason", "share", "ops"], data.summary.length);
    for (const reason of data.summary) {
      const line = add(reasons, "tr", null, { "data-filter": "" });
      add(line, "td", (reason.backend ? reason.backend + ": " : "") + reason.code);
      for (const value of [percent(reason.share), reason.ops]) add(line, "td", value, { class: "number" });
      onUse(line, () => setFilter(
        (op) => op.outcome === data.host && (reason.backend ? op.reasons.some((r) => r.backend === reason.backend && r.code === reason.code) : op.code === reason.code),
        reason.code));
    }
    const costly = ops.map((op, index) => index).filter((index) => ops[index].outcome === data.host && ops[index].share > 0);
    costly.sort((left, right) => ops[right].share - ops[left].share || left - right);
    if (costly.length) add(panel, "h2", "Most costly ops of the host");
    const table = newTable(["op", "share", "why"], costly.length);
    for (const index of costly.slice(0, 12)) {
      const line = add(table, "tr");
      opButton(add(line, "td"), ops[index].function, ops[index].name);
      add(line, "td", percent(ops[index].share), { class: "number" });
      add(line, "td", ops[index].text);
    }
  }

  function onUse(line, act) {
    line.setAttribute("tabindex", "0");
    line.addEventListener("click", act);
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") act(); });
  }

  function newTable(heads, count = 1) {
    const table = document.createElement("table");
    if (count) panel.appendChild(table);
    const line = add(add(table, "thead"), "tr");
    heads.forEach((head, position) => add(line, "th", head, position && head !== "why" ? { class: "number" } : {}));
    return add(table, "tbody");
  }

  // ---- what the user does

  function select(index, isCentred) {
    selected = index;
    if (index < 0) showSummary(); else showOp(index);
    if (index >= 0 && isCentred) {
      scale = Math.max(scale, 0.8);
      offsetX = canvas.clientWidth / 2 - (ops[index].column * STEP_X + WIDTH / 2) * scale;
      offsetY = canvas.clientHeight / 2 - (ops[index].layer * STEP_Y + HEIGHT / 2) * scale;
    }
    draw();
  }

  function setFilter(wanted, text) {
    filter = wanted;
    const count = wanted === null ? 0 : ops.filter(wanted).length;
    found.textContent = wanted === null ? "" : text + ": " + plural(count, "op");
    draw();
  }

  function light(wanted, text) {
    setFilter(wanted, text);
    const first = ops.findIndex(wanted);
    if (first >= 0) select(first, true);
  }

  function opAt(x, y) {
    const worldX = (x - offsetX) / scale, worldY = (y - offsetY) / scale;
    const layer = Math.floor(worldY / STEP_Y);
    if (worldY - layer * STEP_Y > HEIGHT) return -1;
    const hit = (rows.get(layer) || []).find((index) => {
      const left = ops[index].column * STEP_X;
      return worldX >= left && worldX <= left + WIDTH;
    });
    return hit === undefined ? -1 : hit;
  }

  function zoom(factor, x, y) {
    const next = Math.min(3, Math.max(0.01, scale * factor));
    offsetX = x - (x - offsetX) * next / scale;
    offsetY = y - (y - offsetY) * next / scale;
    scale = next;
    draw();
  }

  function fit() {
    const columns = ops.reduce((most, op) => Math.max(most, op.column), 0), layers = ops.reduce((most, op) => Math.max(most, op.layer), 0);
    const wide = canvas.clientWidth / ((columns + 1) * STEP_X), high = canvas.clientHeight / ((layers + 1) * STEP_Y);
    scale = Math.min(1, Math.max(wide, 0.5, Math.min(wide, high)));
    const excess = (columns * STEP_X + WIDTH) * scale - canvas.clientWidth;
    const first = (rows.get(0) || []).map((index) => ops[index].column).sort((left, right) => left - right);
    const start = ((first[first.length >> 1] || 0) * STEP_X + WIDTH / 2) * scale;  // in view, however wide the graph
    offsetX = excess <= 0 ? -excess / 2 : canvas.clientWidth / 2 - start;
    offsetY = 20;
  }

  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.offsetX, y: event.offsetY, startX: offsetX, startY: offsetY, isMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const x = event.offsetX - grip.x, y = event.offsetY - grip.y;
    grip.isMoved = grip.isMoved || Math.abs(x) + Math.abs(y) > 4;
    offsetX = grip.startX + x;
    offsetY = grip.startY + y;
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grip && !grip.isMoved) select(opAt(event.offsetX, event.offsetY), false);
    grip = null;
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (moves[event.key]) { offsetX += moves[event.key][0]; offsetY += moves[event.key][1]; draw(); event.preventDefault(); }
    if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.25 : 0.8, canvas.clientWidth / 2, canvas.clientHeight / 2);
    if (event.key === "Escape") { setFilter(null, ""); select(-1, false); }
  });
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = (op) => [op.name, op.op, op.region || "", op.composite || "", op.location].some((text) => text.toLowerCase().includes(wanted));
    setFilter(wanted ? fits : null, wanted);
  });
  search.addEventListener("keydown", (event) => {
    const first = filter === null ? -1 : ops.findIndex((op, index) => index > selected && filter(op));
    if (event.key === "Enter" && filter !== null) select(first >= 0 ? first : ops.findIndex(filter), true);
  });

  const legend = document.getElementById("legend");
  function showLegend() {
    legend.replaceChildren();
    if (heat) {
      const text = isHot ? "Colour by backend" : "Colour by time";
      const button = add(legend, "button", text, { class: "op", type: "button" });
      button.addEventListener("click", () => { isHot = !isHot; showLegend(); select(selected, false); });
    }
    if (isHot) heat.addLegend(add(legend, "span"));
    for (const backend of data.backends) {
      const label = add(legend, "label");
      const box = add(label, "input", null, { type: "checkbox" });
      box.checked = !hidden.has(backend.name);
      box.addEventListener("change", () => { if (box.checked) hidden.delete(backend.name); else hidden.add(backend.name); draw(); });
      if (!isHot) add(label, "span", null, { class: "swatch" }).style.background = colours.get(backend.name);
      label.append(backend.name + " " + percent(backend.share));
    }
  }
  showLegend();
  if (heat) heat.addTables(document.getElementById("tables"));
  window.addEventListener("resize", resize);
  if (window.ResizeObserver) new window.ResizeObserver(resize).observe(canvas);  // tables open and close
  showSummary();
  fit();
  resize();
})();
