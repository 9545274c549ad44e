"use strict";
// Elements made of text and other elements. Nothing here parses HTML, so no name or message can become markup.
window.dashboard = {};
(function (D) {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, properties, children) {
    for (const [name, value] of Object.entries(properties || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }

  D.h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
  D.svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

  D.replace = function (node, ...children) {
    node.replaceChildren();
    return fill(node, null, children);
  };

  D.setText = function (node, text) {
    if (node.textContent !== text) node.textContent = text;
  };

  // A long name breaks after its parts, `algo_kwargs.` or `total_`, and not within a word.
  D.breakable = (name) => String(name).split(/(?<=[._/])(?=\w)/).flatMap((part, place) => (place ? [document.createElement("wbr"), part] : [part]));

  D.card = (title, ...children) => D.h("section", { class: "card" }, D.h("header", null, D.h("h2", null, title)), children);

  D.table = function (heads, rows, numeric) {
    const kind = (place) => ((numeric || []).includes(place) ? { class: "number" } : null);
    const words = heads.length - (numeric || []).length;
    const isWide = heads.length > 4 || (heads.length > 2 && words > 1); // a phone shows its rows as cards
    return D.h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ") },
      D.h(
        "table",
        isWide ? { class: "stack" } : null,
        D.h("thead", null, D.h("tr", null, heads.map((head, place) => D.h("th", { scope: "col", ...kind(place) }, head)))),
        D.h("tbody", null, rows.map((row) => D.h("tr", null, row.map((cell, place) => D.h("td", { ...kind(place), "data-name": isWide ? heads[place] : null }, cell))))),
      ),
    );
  };

  D.pairs = (entries) => D.h("dl", { class: "pairs" }, entries.map(([key, value]) => [D.h("dt", null, key), D.h("dd", null, value)]));
})(window.dashboard);
