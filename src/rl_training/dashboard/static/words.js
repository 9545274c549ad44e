"use strict";
// Numbers, times and states in words.
(function (D) {
  const DASH = "–";

  D.number = function (value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
    if (Number.isInteger(value)) return value.toLocaleString("en-US");
    const digits = size < 10 ? 3 : size < 1000 ? 1 : 0;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  D.score = function (value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
    if (Math.abs(value) >= 1e9) return value.toExponential(2);
    const digits = Math.abs(value) < 1e5 ? 1 : 0;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  D.short = function (value) {
    if (value === null || value === undefined) return "?";
    for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (value >= size * 0.9995) return Number((value / (letter === "k" ? 1e3 : size)).toPrecision(3)) + letter;
    }
    return value.toLocaleString("en-US");
  };

  D.count = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en-US"));

  D.bytes = function (value) {
    if (value === null || value === undefined) return DASH;
    for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
      if (value >= size) return (value / size).toFixed(1) + " " + unit;
    }
    return value + " bytes";
  };

  D.duration = function (seconds) {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
    const whole = Math.round(seconds);
    if (whole < 60) return whole + " s";
    if (whole < 3600) return Math.floor(whole / 60) + " min " + String(whole % 60).padStart(2, "0") + " s";
    if (whole < 48 * 3600) return Math.floor(whole / 3600) + " h " + String(Math.floor((whole % 3600) / 60)).padStart(2, "0") + " min";
    return Math.floor(whole / 86400) + " d " + Math.floor((whole % 86400) / 3600) + " h";
  };

  D.when = function (text) {
    const time = new Date(text);
    if (Number.isNaN(time.getTime())) return text || DASH;
    const pad = (value) => String(value).padStart(2, "0");
    return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${pad(time.getHours())}:${pad(time.getMinutes())}`;
  };

  const SHAPES = {
    running: () => D.svg("circle", { cx: 5, cy: 5, r: 4 }),
    finished: () => D.svg("path", { d: "M1.5 5.5l2.5 2.5 4.5-6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
    interrupted: () => D.svg("path", { d: "M2 1h2v8H2zM6 1h2v8H6z" }),
    failed: () => D.svg("path", { d: "M2 2l6 6M8 2l-6 6", stroke: "currentColor", "stroke-width": 2 }),
  };

  D.status = function (status) {
    const shape = SHAPES[status];
    const icon = shape ? D.svg("svg", { viewBox: "0 0 10 10", width: 10, height: 10, fill: "currentColor", "aria-hidden": "true" }, shape()) : null;
    return D.h("span", { class: "status " + (shape ? status : "") }, icon, status);
  };

  D.progress = function (row) {
    const share = row.total ? Math.min(1, (row.steps || 0) / row.total) : 0;
    const bar = D.h("div", { class: "progress" + (row.status === "finished" ? " done" : ""), "aria-hidden": "true" }, D.h("i"));
    bar.firstChild.style.width = (100 * share).toFixed(1) + "%";
    return bar;
  };

  D.about = function (row) {
    const words = [row.algorithm, row.env].filter(Boolean).join(" on ");
    return [words || "unknown run", row.seed !== null && row.seed !== undefined ? "seed " + row.seed : null].filter(Boolean).join(" · ");
  };

  D.unbroken = (text) => D.h("span", { class: "unbroken" }, text);

  D.speed = (row) => (row.speed ? D.count(Math.round(row.speed)) + " steps/s" : DASH);

  D.left = (row) => (row.status === "running" && row.speed && row.total ? Math.max(0, row.total - (row.steps || 0)) / row.speed : null);
})(window.dashboard);
