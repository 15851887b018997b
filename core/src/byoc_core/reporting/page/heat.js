"use strict";
// Measured times: the colour and the time of an op, lines of the panel, and sortable tables of regions and parts.
// `tools` are functions of page.js: add, row, onUse, opAt (a button for the op at a position), percent, light.
function makeHeat(data, tools) {
  const heat = data.heat;
  const { add, row, percent } = tools;
  const UNMEASURED = "#9aa3ad", STEP = 200, MAX_OPS = 8;
  const isTimed = (op) => op.seconds !== null;
  const hottest = data.ops.reduce((most, op) => Math.max(most, op.seconds || 0), 0);

  function time(seconds) {
    if (seconds >= 1) return seconds.toFixed(3) + " s";
    return seconds >= 1e-3 ? (seconds * 1e3).toFixed(3) + " ms" : (seconds * 1e6).toFixed(2) + " us";
  }

  function count(number) {
    const [scale, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find((pair) => number >= pair[0]) || [1, ""];
    return (Number((number / scale).toPrecision(3)) + " " + unit).trim();
  }

  const share = (seconds) => (heat.seconds ? seconds / heat.seconds : 0);
  const timeAndShare = (seconds) => time(seconds) + " (" + percent(share(seconds)) + ")";

  // From pale yellow to red, light enough for dark text; the root tells small shares apart.
  function colour(seconds) {
    const warmth = hottest ? Math.sqrt(seconds / hottest) : 0;
    return "hsl(" + Math.round(54 - 46 * warmth) + ", 90%, " + Math.round(88 - 26 * warmth) + "%)";
  }

  function addLegend(parent) {
    parent.append("share of the time: ");
    for (const part of [0, 0.25, 0.5, 1]) {
      add(parent, "span", null, { class: "swatch" }).style.background = colour(part * hottest);
      parent.append(percent(share(part * hottest)) + " ");
    }
    add(parent, "span", null, { class: "swatch" }).style.background = UNMEASURED;
    parent.append("not measured");
  }

  // ---- the panel of an op

  function addTime(table, index) {
    const op = data.ops[index], region = heat.regions[op.measured];
    for (const position of op.parts.slice(0, STEP)) {
      const part = heat.parts[position], others = part.ops.filter((other) => other.index !== index);
      row(table, "time", (cell) => {
        if (others.length) {
          cell.append("fused with ");
          addOps(cell, others);
          cell.append(", together ");
        }
        cell.append(timeAndShare(part.seconds));
      });
      row(table, "part", part.name);
    }
    if (op.parts.length) return;
    const unknown = region ? "in no measured part of " + region.name : "not measured";
    row(table, "time", isTimed(op) ? "within " + region.name + ", " + timeAndShare(op.seconds) : unknown);
  }

  function addOps(parent, ops) {
    ops.slice(0, MAX_OPS).forEach((op, position) => {
      if (position) parent.append(", ");
      const text = op.op + " " + op.name;
      if (op.index >= 0) tools.opAt(parent, op.index, text); else add(parent, "code", text);
      if (op.location) parent.append(" (" + op.location + ")");
    });
    if (ops.length > MAX_OPS) parent.append(" and " + (ops.length - MAX_OPS) + " more");
  }

  // ---- tables

  const roofline = (item) => (item.roofline === null ? "-" : item.roofline > 1 ? "cache" : (100 * item.roofline).toFixed(0) + "%");
  const rate = (item) => (item.seconds ? item.flops / item.seconds : 0);
  const known = (number) => (number ? count(number) : "-");
  const TIMES = [  // head, value for sorting, text
    ["backend", (item) => item.backend],
    ["calls", (item) => item.calls, (item) => (item.calls ? String(Number(item.calls.toFixed(1))) : "")],
    ["time", (item) => item.seconds, (item) => time(item.seconds)],
    ["share", (item) => share(item.seconds), (item) => percent(share(item.seconds))],
    ["FLOPs", (item) => item.flops, (item) => known(item.flops)],
    ["FLOP/s", rate, (item) => known(rate(item))],
    ["bytes", (item) => item.nbytes, (item) => known(item.nbytes)],
    ["roofline", (item) => (item.roofline === null ? -1 : item.roofline), roofline],
  ];
  const nameOps = (item) => item.ops.map((op) => op.op + " " + op.name).join(", ");

  function addTable(parent, title, columns, items, use) {
    const box = add(parent, "details", null, { open: "" });
    add(box, "summary", title + " (" + items.length + ")");
    const table = add(box, "table"), heads = add(add(table, "thead"), "tr"), body = add(table, "tbody"), rest = add(box, "p");
    let sorted = items, shown = 0, sortedBy = -1, isDown = false;
    const isNumber = (column) => items.length > 0 && typeof column[1](items[0]) === "number";

    function show(limit) {
      for (const item of sorted.slice(shown, limit)) {
        const line = add(body, "tr", null, { "data-filter": "" });
        for (const column of columns) {
          const cell = add(line, "td", null, isNumber(column) ? { class: "number" } : {});
          if (column[3]) column[3](cell, item); else cell.textContent = (column[2] || column[1])(item);
        }
        tools.onUse(line, () => use(item));
      }
      shown = Math.min(limit, sorted.length);
      rest.replaceChildren();
      if (shown === sorted.length) return;
      const button = add(rest, "button", "Show more rows: " + (sorted.length - shown) + " are left", { class: "op", type: "button" });
      button.addEventListener("click", () => show(shown + STEP));
    }

    function sortBy(position) {
      const column = columns[position], order = isNumber(column) ? (a, b) => a - b : (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      isDown = position === sortedBy ? !isDown : isNumber(column);
      sortedBy = position;
      const keyed = items.map((item, index) => [column[1](item), index]);
      keyed.sort((a, b) => (isDown ? order(b[0], a[0]) : order(a[0], b[0])) || a[1] - b[1]);
      sorted = keyed.map((pair) => items[pair[1]]);
      headCells.forEach((cell, index) => cell.setAttribute("aria-sort", index !== position ? "none" : isDown ? "descending" : "ascending"));
      body.replaceChildren();
      shown = 0;
      show(STEP);
    }

    const headCells = columns.map((column, position) => {
      const cell = add(heads, "th", null, isNumber(column) ? { class: "number" } : {});
      add(cell, "button", column[0], { type: "button" }).addEventListener("click", () => sortBy(position));
      return cell;
    });
    sortBy(columns.findIndex((column) => column[0] === "time"));
  }

  function addTables(parent) {
    parent.hidden = false;
    const regionName = ["region", (item) => item.name], partName = ["part", (item) => item.name];
    const ops = ["ops", nameOps, null, (cell, item) => addOps(cell, item.ops)];
    addTable(parent, "Regions", [regionName, ...TIMES], heat.regions, (region) => {
      const position = heat.regions.indexOf(region);
      tools.light((op) => op.measured === position, "region " + region.name);
    });
    addTable(parent, "Parts", [partName, ...TIMES, ["region", (item) => item.region], ops], heat.parts, (part) => {
      const position = heat.parts.indexOf(part);
      tools.light((op) => op.parts.includes(position), "part " + part.name);
    });
  }

  return {
    addLegend, addTables, addTime,
    colourOf: (op) => (isTimed(op) ? colour(op.seconds) : UNMEASURED),
    label: (op) => (isTimed(op) ? time(op.seconds) : "?"),
  };
}
