// Keeps a stream of events open and updates the elements that changed. The server draws everything; without this file
// the page reloads instead.
'use strict';
(() => {
  const lost = document.getElementById('lost');
  const silence = 5000; // milliseconds without an event after which the values count as stale
  const retry = 10000; // milliseconds after which a refused stream is requested again
  let stream = null, timer = 0, since = '', at = document.querySelector('#head time').textContent;

  // morph turns one element into another and keeps what is equal: focus, selection, and open details.
  function morph(old, now) {
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
      else if (child.nodeType === Node.ELEMENT_NODE) morph(there, child);
      else if (there.data !== child.data) there.data = child.data;
    });
    was.slice(is.length).forEach((node) => node.remove());
  }

  function put(id, html) {
    const old = document.getElementById(id), box = document.createElement('template');
    box.innerHTML = html; // drawn and escaped by the server; a script in it would not run
    if (old) morph(old, box.content.firstElementChild);
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

  function stale(why) {
    since = since || new Date().toLocaleTimeString('en-GB');
    live(false);
    const text = `Not connected since ${since}: ${why}. Values from ${at}.`;
    if (lost.textContent !== text) lost.textContent = text;
    lost.hidden = false;
  }

  function watch() {
    clearTimeout(timer);
    timer = setTimeout(() => stale('no data received, retrying'), silence);
  }

  function receive(event) {
    const m = JSON.parse(event.data);
    const isOther = m.layout !== document.documentElement.dataset.layout; // the server is another version
    if (isOther && sessionStorage.getItem('layout') !== m.layout) { // reload once: a cache may have the old page
      sessionStorage.setItem('layout', m.layout);
      stream.close();
      location.reload();
      return;
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
    stream.onmessage = receive;
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) { // the browser retries
        stale('retrying');
        watch();
        return;
      }
      stale(`stream refused, possibly too many open pages; retrying every ${retry / 1000} s`);
      clearTimeout(timer);
      timer = setTimeout(open, retry);
    };
    watch();
  }

  // A hidden page holds no stream: it costs the node nothing, and a browser has few connections to one host.
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
