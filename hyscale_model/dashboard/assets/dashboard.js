// What happens in the browser: state and its address, controls and texts. Nothing here computes a result.
(function () {
  "use strict";

  const LIMIT_BYTES = 1 << 20;
  const TYPING_MS = 400;
  const FRAMES = 30;
  const ASKING_MS = 500;
  const LATER_MS = 80;
  const SYSTEMS = "systems";

  const find = (id) => document.getElementById(id);
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const nothing = () => window.dash_clientside.no_update;
  const tell = (id, data) => window.dash_clientside.set_props(id, { data: data });

  // The state of a page: {scenario, set: {path: text}, range: {path: text}, systems: [..] | null, view, options, pinned}.

  let state = null;
  // Questions so far, and the one that the controls belong to.
  let asked = 0;
  let framed = 0;

  function empty(scenario) {
    return { scenario: scenario, set: {}, range: {}, systems: null, view: null, options: {}, pinned: null };
  }

  // One parameter a change, so that an address reads like a command line.
  function encode(of) {
    const parts = [];
    const add = (key, value) => parts.push(encodeURIComponent(key) + "=" + encodeURIComponent(value));
    if (of.scenario) add("scenario", of.scenario);
    Object.keys(of.set).sort().forEach((path) => add(path, of.set[path]));
    Object.keys(of.range).sort().forEach((path) => add("range." + path, of.range[path]));
    if (of.systems) add(SYSTEMS, of.systems.join(","));
    if (of.view) add("view", of.view);
    Object.keys(of.options).sort().forEach((name) => add("view." + name, of.options[name]));
    if (of.pinned) add("pinned", encode(of.pinned).slice(1));
    return "?" + parts.join("&").replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/");
  }

  function decode(search) {
    const found = empty(null);
    new URLSearchParams(search).forEach((value, key) => {
      if (key === "scenario") found.scenario = value;
      else if (key === SYSTEMS) found.systems = value.split(",").filter(Boolean);
      else if (key === "view") found.view = value;
      else if (key === "pinned") found.pinned = decode("?" + value);
      else if (key.startsWith("view.")) found.options[key.slice(5)] = value;
      else if (key.startsWith("range.")) found.range[key.slice(6)] = value;
      else found.set[key] = value;
    });
    return found;
  }

  // Ask for another state. `anew`: the controls must be made anew, since there are others or they say something else.
  function ask(change, anew) {
    const next = JSON.parse(JSON.stringify(state));
    // An address without a scenario shows the first one; once something changes, it says which.
    next.scenario = next.scenario || document.querySelector("[data-scenario]").value;
    change(next);
    if (encode(next) === encode(state)) return;
    state = next;
    state.at = ++asked;
    busy(true);
    tell("state", state);
    if (anew) makeControls();
    window.dash_clientside.set_props("url", { search: encode(state) });
    showPlace();
  }

  // Whether the page waits for an answer, for those who do not see it.
  function busy(waits) {
    const place = find("view");
    if (place) place.setAttribute("aria-busy", String(waits));
  }

  function makeControls() {
    framed = state.at;
    tell("frame", Object.assign({}, state));
  }

  // The address changed: on arrival, and with the browser's back and forward.
  function restore(search) {
    if (state && encode(state) === search) return nothing();
    state = decode(search);
    state.at = ++asked;
    busy(true);
    makeControls();
    showPlace();
    return state;
  }

  // Controls

  function sameText(a, b) {
    return a === b || (a !== "" && b !== "" && Number(a) === Number(b));
  }

  function takeSet(entry) {
    const path = entry.dataset.set;
    if (entry.value === "") return;
    ask((next) => {
      if (sameText(entry.value, entry.dataset.own)) delete next.set[path];
      else next.set[path] = entry.value;
      if (entry.dataset.anew === undefined) return;
      // Another catalogue entry: changes to the fields of the old one are no longer meant.
      Object.keys(next.set).forEach((each) => {
        if (each.startsWith(path + ".")) delete next.set[each];
      });
    }, entry.dataset.anew !== undefined);
  }

  function takeRange(group) {
    const entries = Array.from(group.querySelectorAll("input"));
    const chosen = entries.filter((each) => (each.type === "checkbox" ? each.checked : each.value !== ""));
    const text = chosen.map((each) => each.value).join(",");
    const whole = entries[0].type === "checkbox" || chosen.length === entries.length;
    if (!text || !whole) return;
    ask((next) => {
      if (text === group.dataset.own) delete next.range[group.dataset.range];
      else next.range[group.dataset.range] = text;
    });
  }

  function takeSystems() {
    const chosen = all("[data-system]").filter((each) => each.checked).map((each) => each.value);
    if (chosen.length) ask((next) => { next.systems = chosen; }, true);
  }

  function take(entry) {
    const data = entry.dataset;
    if (data.set !== undefined) takeSet(entry);
    else if (data.system !== undefined) takeSystems();
    else if (data.scenario !== undefined) choose(entry.value);
    else if (data.option !== undefined) takeOption(entry);
    else if (data.upload !== undefined) upload(entry);
    else if (entry.closest("[data-range]")) takeRange(entry.closest("[data-range]"));
  }

  // A choice of a view; empty ones leave the address.
  function takeOption(entry) {
    const value = entry.type === "checkbox" && !entry.checked ? "" : entry.value;
    ask((next) => {
      if (value === "") delete next.options[entry.dataset.option];
      else next.options[entry.dataset.option] = value;
      (entry.dataset.clears || "").split(" ").forEach((name) => { delete next.options[name]; });
    });
  }

  function choose(scenario) {
    ask((next) => Object.assign(next, empty(scenario), { view: state.view, pinned: state.pinned }), true);
  }

  function upload(entry) {
    const file = entry.files[0];
    if (!file) return;
    const send = (content) => tell("upload", {
      name: file.name, content: content, kind: entry.dataset.upload, at: Date.now(),
    });
    // The same file may be chosen again once it is mended.
    entry.value = "";
    if (file.size > LIMIT_BYTES) {
      send(null);
      return;
    }
    const reader = new FileReader();
    reader.onload = () => send(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.readAsDataURL(file);
  }

  // What was uploaded is chosen: a scenario, or the value of a choice of that name.
  function take_upload(taken) {
    if (!taken) return;
    const name = "upload:" + taken.key;
    if (taken.kind) ask((next) => { next.options[taken.kind] = name; });
    else choose(name);
  }

  // A segment of a figure was pointed at.
  function pick(clicks) {
    const cause = window.dash_clientside.callback_context.triggered[0];
    const point = cause && cause.value && cause.value.points[0];
    if (point && Array.isArray(point.customdata)) {
      ask((next) => Object.assign(next.options, { system: point.customdata[1], term: point.customdata[2] }));
    }
  }

  const ACTS = {
    pin: () => ask((next) => {
      next.pinned = state.pinned ? null : Object.assign({}, next, { view: null, options: {}, pinned: null });
    }),
    reset: () => ask((next) => Object.assign(next, { set: {}, range: {}, systems: null }), true),
    yaml: () => tell("yaml-wanted", Date.now()),
    theme: () => {
      const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      window.localStorage.setItem("hyscale-theme", other);
      tell("theme", window.hyscaleTheme());
    },
    controls: (button) => {
      const open = find("controls").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    },
  };

  function scaleControl(button) {
    const entry = all("[data-set]").find((each) => each.dataset.set === button.dataset.scale);
    const scaled = Number(entry.value) * Number(button.dataset.by);
    if (!Number.isInteger(scaled) || scaled < 1) return;
    entry.value = scaled;
    takeSet(entry);
  }

  function undo(path) {
    ask((next) => {
      if (path === SYSTEMS) next.systems = null;
      delete next.set[path];
      delete next.range[path];
    }, true);
  }

  let typing = null;
  document.addEventListener("change", (event) => {
    clearTimeout(typing);
    take(event.target);
  });
  document.addEventListener("input", (event) => {
    if (event.target.type !== "number") return;
    clearTimeout(typing);
    typing = setTimeout(() => take(event.target), TYPING_MS);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const data = button.dataset;
    if (data.act) ACTS[data.act](button);
    else if (data.view) ask((next) => { next.view = data.view; });
    else if (data.scale) scaleControl(button);
    else if (data.undo) undo(data.undo);
    else if (data.cancel) tell("waiting", { jobs: [data.cancel], cancel: true, at: Date.now() });
    else if (data.again !== undefined) again();
  });

  // Studies that are at work: the page asks how far they are, and for the view when one is finished.

  setInterval(() => {
    const jobs = all("[data-job]").map((each) => each.dataset.job);
    if (jobs.length) tell("waiting", { jobs: jobs, at: Date.now() });
  }, ASKING_MS);

  function show_progress(found) {
    let finished = false;
    Object.entries(found || {}).forEach(([job, done]) => {
      const place = all("[data-job]").find((each) => each.dataset.job === job);
      if (!place) return;
      if (done === null) cancelled(place);
      else {
        place.querySelector("progress").value = 100 * done;
        place.querySelector(".share").textContent = Math.round(100 * done) + " %";
      }
      // It is asked about no more; the answer of the view takes its place.
      if (done === 1) {
        finished = true;
        delete place.dataset.job;
      }
    });
    if (finished) again();
  }

  function cancelled(place) {
    delete place.dataset.job;
    place.parentElement.hyscaleText = null;
    place.innerHTML = '<span>Cancelled.</span><button type="button" class="small" data-again>Begin again</button>';
  }

  // The same question once more.
  function again() {
    state.at = ++asked;
    tell("state", Object.assign({}, state));
  }

  // What the page says about its state: the view, and every change with a button that undoes it.
  function showPlace() {
    const tabs = all("nav button");
    if (!tabs.length || !state) {
      requestAnimationFrame(showPlace);
      return;
    }
    const view = state.view || tabs[0].dataset.view;
    tabs.forEach((tab) => {
      if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    });
    const changes = Object.entries(state.set).map(([path, value]) => [path, path + " = " + value])
      .concat(Object.entries(state.range).map(([path, value]) => [path, path + " in " + value.replace(/,/g, ", ")]));
    if (state.systems) changes.push([SYSTEMS, "systems: " + state.systems.join(", ")]);
    find("changes").replaceChildren(...changes.map(([path, text]) => {
      const chip = document.createElement("button");
      Object.assign(chip, { className: "chip", title: "Undo this change", textContent: text });
      chip.dataset.undo = path;
      return chip;
    }));
    find("pin").textContent = state.pinned ? "Unpin" : "Pin";
  }

  // Texts: HTML that the server made and escaped, by the id of its element.

  function put(texts, always) {
    Object.entries(texts || {}).forEach(([id, html]) => {
      const place = find(id);
      if (place && (always || place.hyscaleText !== html)) {
        keepingFocus(place, () => { place.innerHTML = html; });
        place.hyscaleText = html;
      }
    });
  }

  // New texts must not take the focus from the reader, nor close what was opened.
  function keepingFocus(place, change) {
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    const same = focused && ["option", "set"].filter((key) => focused.dataset[key] !== undefined)
      .map((key) => "[data-" + key + '="' + CSS.escape(focused.dataset[key]) + '"]')[0];
    const opened = Array.from(place.querySelectorAll("details")).map((each) => each.open);
    change();
    const now = Array.from(place.querySelectorAll("details"));
    if (now.length === opened.length) now.forEach((each, index) => { each.open = opened[index]; });
    const again = same && place.querySelector(same);
    if (again) again.focus();
  }

  // Cards that are new on the page appear in one of the next frames, in place of old ones of the same name.
  let latest = null;

  function fill(texts, frames) {
    if (texts !== latest) return;
    put(texts);
    if (frames) requestAnimationFrame(() => fill(texts, frames - 1));
  }

  // Answers

  // What the page shows: its cards, and each figure as text.
  let shown = null;
  let plotted = {};

  function deliver(answer, graphs) {
    const same = graphs.map(nothing);
    // Answers may overtake one another: the page takes the one it waits for.
    if (!answer || answer.at !== state.at || answer.theme !== document.documentElement.dataset.theme) return [nothing(), same];
    busy(false);
    fill_message(answer.problem);
    if (!answer.cards) return [nothing(), same];
    const outline = JSON.stringify(answer.cards);
    latest = answer.texts;
    fill(latest, outline === shown ? 0 : FRAMES);
    const figures = Object.entries(answer.figures).map(([name, figure]) => [name, figure, JSON.stringify(figure)]);
    if (outline !== shown) {
      shown = outline;
      plotted = Object.fromEntries(figures.map(([name, _, text]) => [name, text]));
      return [answer.cards.map((card) => drawn(card, answer.figures)), same];
    }
    // In place: figures move to their new values instead of being drawn anew, those without new ones are left alone,
    // and those out of sight wait until the others are drawn.
    const news = figures.filter(([name, _, text]) => plotted[name] !== text);
    const now = Object.fromEntries(news.filter(([name]) => inSight(name)).map(([name, figure, text]) => {
      plotted[name] = text;
      return [name, figure];
    }));
    const later = news.filter(([name]) => !(name in now));
    if (later.length) setTimeout(() => drawLater(later, answer.texts), LATER_MS);
    return [nothing(), graphs.map(({ name }) => now[name] || nothing())];
  }

  function inSight(name) {
    const place = find("figure-" + name).getBoundingClientRect();
    return place.top < window.innerHeight && place.bottom > 0;
  }

  function drawLater(figures, texts) {
    if (texts !== latest) return;
    figures.forEach(([name, figure, text]) => {
      plotted[name] = text;
      window.dash_clientside.set_props({ kind: "graph", name: name }, { figure: figure });
    });
  }

  // A card with its figure in it.
  function drawn(part, figures) {
    if (Array.isArray(part)) return part.map((each) => drawn(each, figures));
    if (!part || !part.props) return part;
    const props = Object.assign({}, part.props);
    if (props.id && props.id.kind === "graph") props.figure = figures[props.id.name];
    if (props.children) props.children = drawn(props.children, figures);
    return Object.assign({}, part, { props: props });
  }

  function fill_controls(controls) {
    // Even where the text is the same: readers changed what its controls say.
    if (controls && controls.at === framed) put(controls.texts, true);
  }

  function fill_message(text) {
    put({ message: text || "" });
    find("main").classList.toggle("stale", Boolean(find("message").querySelector(".error")));
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    hyscale: {
      restore: restore, deliver: deliver, fill_controls: fill_controls, fill_message: fill_message,
      take_upload: take_upload, pick: pick, show_progress: show_progress, theme: window.hyscaleTheme,
    },
  });
})();
