// What happens in the browser: state and its address, theme, tips, downloads. Nothing here computes a result.
(function () {
  "use strict";

  const nothing = () => window.dash_clientside.no_update;
  const SYSTEMS = "systems";

  // The state of a page: {scenario, set: {path: text}, range: {path: text}, systems: [..] | null, view, options, pinned}.

  function empty(scenario) {
    return { scenario: scenario, set: {}, range: {}, systems: null, view: null, options: {}, pinned: null };
  }

  // One parameter a change, so that an address reads like a command line.
  function encode(state) {
    const parts = [];
    const add = (key, value) => parts.push(encodeURIComponent(key) + "=" + encodeURIComponent(value));
    add("scenario", state.scenario);
    Object.keys(state.set).sort().forEach((path) => add(path, state.set[path]));
    Object.keys(state.range).sort().forEach((path) => add("range." + path, state.range[path]));
    if (state.systems) add(SYSTEMS, state.systems.join(","));
    if (state.view) add("view", state.view);
    Object.keys(state.options).sort().forEach((name) => add("view." + name, state.options[name]));
    if (state.pinned) add("pinned", encode(state.pinned).slice(1));
    return "?" + parts.join("&").replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/");
  }

  function decode(search) {
    const state = empty(null);
    new URLSearchParams(search).forEach((value, key) => {
      if (key === "scenario") state.scenario = value;
      else if (key === SYSTEMS) state.systems = value.split(",").filter(Boolean);
      else if (key === "view") state.view = value;
      else if (key === "pinned") state.pinned = decode("?" + value);
      else if (key.startsWith("view.")) state.options[key.slice(5)] = value;
      else if (key.startsWith("range.")) state.range[key.slice(6)] = value;
      else state.set[key] = value;
    });
    return state;
  }

  // Fields named by a catalogue entry: choosing another entry undoes changes to the fields of the old one.
  const NAMED = ["model", "cluster", "cluster.gpu"];

  function sameText(a, b) {
    return a === b || (a !== "" && b !== "" && Number(a) === Number(b));
  }

  function decide(search, scenario, uploaded, uploads, controls, ranges, systems, options, picks, views, undos, pin, reset,
    controlIds, rangeIds, optionIds, known, base, offered) {
    const cause = window.dash_clientside.callback_context.triggered_id;
    const triggers = window.dash_clientside.callback_context.triggered.map((each) => each.prop_id);
    const by = (id) => triggers.some((each) => each.startsWith(id + "."));
    const names = listed(offered, uploads);
    const unchanged = [nothing(), nothing(), nothing(), nothing(), nothing()];

    if (!known || by("url")) {
      if (known && encode(known) === search) return unchanged;
      const state = decode(search);
      if (!state.scenario) state.scenario = offered[0].value || offered[0];
      return told(state, true, names);
    }
    const state = JSON.parse(JSON.stringify(known));
    let anew = false;
    if (by("uploaded") && uploaded) {
      Object.assign(state, empty("upload:" + uploaded.key), { view: known.view, pinned: known.pinned });
      anew = true;
    } else if (by("uploads")) {
      return [nothing(), nothing(), nothing(), nothing(), names];
    } else if (by("scenario")) {
      if (!scenario || scenario === known.scenario) return unchanged;
      Object.assign(state, empty(scenario), { view: known.view, pinned: known.pinned });
      anew = true;
    } else if (by("reset") && reset) {
      Object.assign(state, { set: {}, range: {}, systems: null });
      anew = true;
    } else if (by("pin") && pin) {
      state.pinned = state.pinned ? null : Object.assign({}, known, { view: null, options: {}, pinned: null });
    } else if (cause && cause.kind === "view") {
      state.view = cause.name;
    } else if (cause && cause.kind === "undo") {
      if (!undos.some(Boolean)) return unchanged;
      if (cause.path === SYSTEMS) state.systems = null;
      delete state.set[cause.path];
      delete state.range[cause.path];
      anew = true;
    } else if (cause && cause.kind === "pick") {
      const pick = picks.find(Boolean);
      if (!pick) return unchanged;
      state.options.system = pick.points[0].customdata[1];
      state.options.term = pick.points[0].customdata[2];
    } else if (cause && cause.kind === "option") {
      optionIds.forEach((id, index) => {
        // What a view shows by itself is no choice of the reader until it is changed.
        if (id.name === cause.name && options[index] !== null) state.options[id.name] = options[index];
      });
    } else if (base) {
      anew = takeControls(state, base, controls, controlIds, ranges, rangeIds, systems);
    }
    if (encode(state) === encode(known)) return unchanged;
    return told(state, anew, names);
  }

  function takeControls(state, base, controls, controlIds, ranges, rangeIds, systems) {
    const cause = window.dash_clientside.callback_context.triggered_id || {};
    let anew = false;
    controlIds.forEach((id, index) => {
      const value = controls[index];
      const own = base.set[id.path];
      if (value === null || value === undefined || own === undefined) return;
      if (sameText(String(value), own)) delete state.set[id.path];
      else state.set[id.path] = String(value);
    });
    if (NAMED.includes(cause.path)) {
      Object.keys(state.set).forEach((path) => {
        if (path.startsWith(cause.path + ".") && path !== cause.path) delete state.set[path];
      });
      anew = true;
    }
    rangeIds.forEach((id, index) => {
      const value = ranges[index];
      const own = base.range[id.path];
      if (!value || own === undefined) return;
      // Choices in the order of the scenario, whatever order they were ticked in.
      const text = typeof value[0] === "number" ? value.map(plain).join(",")
        : own.split(",").filter((each) => value.includes(each)).join(",");
      if (!text || text === own) delete state.range[id.path];
      else state.range[id.path] = text;
    });
    if (cause.kind === SYSTEMS && systems.length && systems[0].length) {
      const ordered = base.systems.filter((name) => systems[0].includes(name));
      const chosen = ordered.concat(systems[0].filter((name) => !ordered.includes(name)));
      state.systems = chosen.join(",") === base.systems.join(",") && !state.systems ? null : chosen;
      anew = true;
    }
    return anew;
  }

  function plain(number) {
    return String(Number(number.toPrecision(6)));
  }

  function told(state, anew, names) {
    return [state, encode(state), anew ? Object.assign({}, state, { at: Date.now() }) : nothing(), state.scenario, names];
  }

  // The offered scenarios, and uploads by the name of their file.
  function listed(offered, uploads) {
    const fixed = offered.filter((each) => !String(each.value || each).startsWith("upload:"));
    const more = Object.entries(uploads || {}).map(([key, kept]) => ({ value: "upload:" + key, label: kept.name }));
    return fixed.concat(more);
  }

  function scale(halve, double, value) {
    const cause = window.dash_clientside.callback_context.triggered_id;
    if (!cause || value === null || value === undefined) return nothing();
    const scaled = cause.kind === "halve" ? value / 2 : value * 2;
    return Number.isInteger(scaled) && scaled >= 1 ? scaled : nothing();
  }

  function element(type, props, namespace) {
    return { type: type, namespace: namespace || "dash_html_components", props: props };
  }

  function show_place(state, ids) {
    if (!state) return [ids.map(() => ""), [], "Pin"];
    const view = state.view || ids[0].name;
    const changes = Object.entries(state.set).map(([path, value]) => [path, path + " = " + value])
      .concat(Object.entries(state.range).map(([path, value]) => [path, path + " in " + value.replace(/,/g, ", ")]));
    if (state.systems) changes.push([SYSTEMS, "systems: " + state.systems.join(", ")]);
    const chips = changes.map(([path, text]) => element("Button", {
      id: { kind: "undo", path: path }, className: "chip", title: "Undo this change", children: [text, element("Span", { children: "×" })],
    }));
    return [ids.map((id) => (id.name === view ? "current" : "")), chips, state.pinned ? "Unpin" : "Pin"];
  }

  function theme(clicks, current) {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    let chosen = window.localStorage.getItem("hyscale-theme") || system;
    if (clicks && current) {
      chosen = current === "dark" ? "light" : "dark";
      window.localStorage.setItem("hyscale-theme", chosen);
    }
    document.documentElement.dataset.theme = chosen;
    return chosen;
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    hyscale: { decide: decide, scale: scale, show_place: show_place, theme: theme },
  });

  // Before the first paint: no flash of the other theme.
  theme(null, null);

  // Downloads. Figures and tables are what the page shows, so no server is asked.

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function csv(table) {
    const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text);
    return Array.from(table.rows)
      .map((row) => Array.from(row.cells).map((cell) => quoted(cell.innerText.trim())).join(",")).join("\r\n");
  }

  function picture(id, format) {
    const plot = document.getElementById(id).querySelector(".js-plotly-plot");
    const ground = getComputedStyle(document.documentElement).getPropertyValue("--surface").trim();
    const layout = Object.assign({}, plot.layout, { paper_bgcolor: ground, plot_bgcolor: ground });
    const size = plot.getBoundingClientRect();
    window.Plotly.downloadImage({ data: plot.data, layout: layout },
      { format: format, filename: id, width: Math.round(size.width), height: Math.round(size.height), scale: format === "png" ? 2 : 1 });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.table) {
      save("hyscale-" + button.dataset.name + ".csv", "text/csv", csv(document.getElementById(button.dataset.table)));
    } else if (button.dataset.figure) {
      picture(button.dataset.figure, button.dataset.format);
    } else if (button.id === "open-controls") {
      const open = document.getElementById("controls").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    }
  });

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
    const left = Math.min(Math.max(8, place.left), window.innerWidth - own.width - 8);
    const above = place.top - own.height - 6;
    bubble.style.left = left + "px";
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
