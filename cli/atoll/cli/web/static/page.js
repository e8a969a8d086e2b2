// Keeps a page as it is on the host: parts that change come over one stream.
const policy = window.trustedTypes?.createPolicy("atoll", { createHTML: (text) => text });
const live = document.getElementById("live");
const connection = document.getElementById("connection");
let parts = [];
let source = null;
let retry = 0;

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

// An item is a part, or the index of the same part in the parts before.
function take(event) {
  parts = JSON.parse(event.data).map((item) => (typeof item === "number" ? parts[item] : item));
  const text = parts.join("");
  const fresh = document.createElement("template");
  fresh.innerHTML = policy ? policy.createHTML(text) : text;
  morph(live, fresh.content);
  say("live");
}

// Makes the children of one node the same as those of another; nodes that stay keep focus, scroll and selection.
function morph(from, to) {
  const keyed = new Map();
  for (const each of from.children) if (each.dataset?.key) keyed.set(each.dataset.key, each);
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const key = next.dataset?.key;
    const mine = key ? keyed.get(key) : at?.nodeName === next.nodeName && !at.dataset?.key ? at : null;
    if (!mine || mine.nodeName !== next.nodeName) {
      from.insertBefore(next, at);
      continue;
    }
    if (mine === at) at = at.nextSibling;
    else from.insertBefore(mine, at);
    if (!mine.isEqualNode(next)) update(mine, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function update(mine, next) {
  if (mine.nodeType !== Node.ELEMENT_NODE) {
    mine.nodeValue = next.nodeValue;
    return;
  }
  for (const { name, value } of next.attributes) if (mine.getAttribute(name) !== value) mine.setAttribute(name, value);
  for (const { name } of [...mine.attributes]) {
    // A reader opened it.
    if (!next.hasAttribute(name) && name !== "open") mine.removeAttribute(name);
  }
  morph(mine, next);
}

function open() {
  if (source || document.hidden) return;
  clearTimeout(retry);
  source = new EventSource(`/changes?of=${encodeURIComponent(location.pathname + location.search)}`);
  source.onmessage = take;
  source.addEventListener("gone", (event) => again(JSON.parse(event.data)));
  source.onerror = () => again("not connected: the page is old");
}

function again(why) {
  close();
  say(why);
  retry = setTimeout(open, 3000);
}

function close() {
  source?.close();
  source = null;
}

// A hidden page needs no stream: a browser has six connections to one server.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
open();
