// What a page does by itself, be it the dashboard or a report in one file: theme, downloads, tips.
(function () {
  "use strict";

  const find = (id) => document.getElementById(id);

  window.hyscaleTheme = () => {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const chosen = window.localStorage.getItem("hyscale-theme") || system;
    document.documentElement.dataset.theme = chosen;
    return chosen;
  };
  // Before the first paint: no flash of the other theme.
  window.hyscaleTheme();

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const data = button.dataset;
    if (data.table) save(data.table.replace("table-", "hyscale-") + ".csv", csv(find(data.table)));
    else if (data.figure) picture(data.figure, data.format);
    else if (data.copy) navigator.clipboard.writeText(find(data.copy).textContent);
  });

  // Downloads. Figures and tables are what the page shows, so no server is asked.

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function csv(table) {
    const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text);
    return Array.from(table.rows)
      .map((row) => Array.from(row.cells).map((cell) => quoted(cell.textContent.trim())).join(",")).join("\r\n");
  }

  function picture(id, format) {
    const plot = find(id).querySelector(".js-plotly-plot");
    const ground = getComputedStyle(document.documentElement).getPropertyValue("--surface").trim();
    const size = plot.getBoundingClientRect();
    const layout = Object.assign({}, plot.layout, { paper_bgcolor: ground, plot_bgcolor: ground });
    // The legend stands on the page; a picture on its own needs it inside.
    const room = plot.layout.meta.legend ? 22 * Math.ceil(plot.data.length * 180 / size.width) : 0;
    layout.showlegend = room > 0;
    layout.margin = Object.assign({}, plot.layout.margin, { t: plot.layout.margin.t + room });
    layout.height = size.height + room;
    window.Plotly.downloadImage({ data: plot.data, layout: layout }, {
      format: format, filename: id.replace("figure-", "hyscale-"), scale: format === "png" ? 2 : 1,
      width: Math.round(size.width), height: Math.round(size.height + room),
    });
  }

  // Tips: one element, placed inside the window, for pointer and keyboard alike.

  let bubble = null;

  function hideTip() {
    if (bubble) bubble.remove();
    bubble = null;
  }

  function showTip(target) {
    hideTip();
    bubble = document.createElement("div");
    bubble.className = "tip";
    bubble.setAttribute("role", "tooltip");
    bubble.textContent = target.dataset.tip;
    document.body.appendChild(bubble);
    const place = target.getBoundingClientRect();
    const own = bubble.getBoundingClientRect();
    const above = place.top - own.height - 6;
    bubble.style.left = Math.min(Math.max(8, place.left), window.innerWidth - own.width - 8) + "px";
    bubble.style.top = (above > 0 ? above : place.bottom + 6) + "px";
  }

  ["mouseover", "focusin"].forEach((name) => document.addEventListener(name, (event) => {
    const target = event.target.closest && event.target.closest("[data-tip]");
    if (target) showTip(target);
    else if (name === "mouseover") hideTip();
  }));
  document.addEventListener("focusout", hideTip);
  document.addEventListener("scroll", hideTip, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });
})();
