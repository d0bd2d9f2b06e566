// Keeps a stream of events open and puts what changed into the page. The server
// has drawn all of it; nothing is computed here, and without this file the page
// is loaded anew instead.
'use strict';
(() => {
  const lost = document.getElementById('lost');
  const silence = 5000; // milliseconds without an event, after which the values count as old
  const again = 10000; // after which a stream that was refused is asked for anew
  let stream = null, timer = 0, since = '', at = document.querySelector('#head time').textContent;

  // become makes the element what another is, and leaves alone what is the same:
  // focus, selection, and details that somebody opened.
  function become(old, now) {
    for (const {name} of [...old.attributes]) {
      if (!now.hasAttribute(name) && !(name === 'open' && old.tagName === 'DETAILS')) old.removeAttribute(name);
    }
    for (const {name, value} of now.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const was = [...old.childNodes], is = [...now.childNodes];
    is.forEach((child, i) => {
      const there = was[i];
      if (!there) old.append(child);
      else if (there.nodeType !== child.nodeType || there.nodeName !== child.nodeName) there.replaceWith(child);
      else if (child.nodeType === Node.ELEMENT_NODE) become(there, child);
      else if (there.data !== child.data) there.data = child.data;
    });
    was.slice(is.length).forEach((node) => node.remove());
  }

  function element(html) {
    const box = document.createElement('template');
    box.innerHTML = html; // the server's own drawing: escaped there, and no script in it would be run
    return box.content.firstElementChild;
  }

  function put(id, html) {
    const old = document.getElementById(id), now = element(html);
    if (old && now) become(old, now);
  }

  function live(is) {
    const sign = document.querySelector('#head .live');
    if (sign) sign.hidden = !is;
    document.documentElement.classList.toggle('stale', !is);
    if (is) {
      lost.hidden = true;
      since = '';
    }
  }

  function old(why) {
    since = since || new Date().toLocaleTimeString('en-GB');
    live(false);
    const text = `Not connected since ${since}: ${why}. The values are of ${at}.`;
    if (lost.textContent !== text) lost.textContent = text;
    lost.hidden = false;
  }

  function watch() {
    clearTimeout(timer);
    timer = setTimeout(() => old('nothing has come, and it is being tried again'), silence);
  }

  function take(event) {
    const m = JSON.parse(event.data);
    if (m.layout !== document.documentElement.dataset.layout) { // another version answers now
      if (sessionStorage.getItem('layout') !== m.layout) { // and if it does so still, a cache is at fault
        sessionStorage.setItem('layout', m.layout);
        stream.close();
        location.reload();
        return;
      }
    }
    if (m.main) put('main', m.main);
    for (const [id, html] of Object.entries(m.parts || {})) put(id, html);
    document.title = m.title;
    at = m.at;
    live(true);
    watch();
  }

  function open() {
    if (stream) stream.close();
    stream = new EventSource('./-/page/events');
    stream.onmessage = take;
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) { // it tries again by itself
        old('it is being tried again');
        watch();
        return;
      }
      old(`the stream was refused, perhaps because too many pages are open; tried again every ${again / 1000} s`);
      clearTimeout(timer);
      timer = setTimeout(open, again);
    };
    watch();
  }

  // A page that nobody sees asks for nothing: it costs the node nothing, and
  // leaves the few connections that a browser has to those that are seen.
  function show() {
    if (document.hidden) {
      clearTimeout(timer);
      if (stream) stream.close();
    } else {
      open();
    }
  }

  document.addEventListener('visibilitychange', show);
  addEventListener('pagehide', () => stream && stream.close());
  addEventListener('pageshow', (event) => event.persisted && show());
  show();
})();
