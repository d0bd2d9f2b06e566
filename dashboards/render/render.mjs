// Draws the dashboards with Grafana's own components over a real Prometheus, and
// says of every panel whether it had something to draw. Usage:
//   node render.mjs --prometheus URL [--to SECONDS] [--range 1h] [--scrape 15]
//     [--only fleet,node] [--themes dark,light] [--folded open] [--out DIR] [--width 1600]
//     [--name NAME] [--var dashboard.variable=value]... [--empty] [--first TEXT]...
// --empty makes an error of a panel that has nothing to draw, and no words of its own for that; --first of a text that
// nobody sees on a screen of 1920 by 1080 without scrolling.
import { createReadStream, existsSync, mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { parseArgs } from 'node:util';
import puppeteer from 'puppeteer-core';

const { values: asked } = parseArgs({
  options: {
    prometheus: { type: 'string' }, to: { type: 'string' }, range: { type: 'string', default: '3600' }, scrape: { type: 'string', default: '15' },
    only: { type: 'string', default: 'fleet,node,probe' }, themes: { type: 'string', default: 'dark,light' }, folded: { type: 'string', default: '' },
    out: { type: 'string', default: 'out' }, width: { type: 'string', default: '1600' }, name: { type: 'string', default: '' }, height: { type: 'string', default: '' },
    var: { type: 'string', multiple: true, default: [] }, empty: { type: 'boolean', default: false },
    first: { type: 'string', multiple: true, default: [] }, chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});
if (!asked.prometheus) {
  throw new Error('--prometheus: the address of a Prometheus is missing, such as http://127.0.0.1:9090');
}

const types = { '.json': 'application/json', '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
const pages = createServer((request, response) => {
  const wanted = path.normalize(new URL(request.url, 'http://here').pathname);
  const file = wanted.startsWith('/provisioning/') ? path.join('..', wanted) : path.join('dist', wanted === '/' ? 'index.html' : wanted);
  if (!existsSync(file)) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { 'content-type': types[path.extname(file)] ?? 'application/octet-stream' });
  createReadStream(file).pipe(response);
});
await new Promise((resolve) => pages.listen(0, '127.0.0.1', resolve));

const browser = await puppeteer.launch({
  executablePath: asked.chromium, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb'],
});
mkdirSync(asked.out, { recursive: true });
const to = asked.to ? Number(asked.to) * 1000 : Date.now();
let bad = 0;
try {
  for (const dashboard of asked.only.split(',')) {
    for (const [i, theme] of asked.themes.split(',').entries()) {
      bad += await picture(dashboard, theme, i === 0);
    }
  }
} finally {
  await browser.close();
  pages.close();
}
process.exitCode = bad > 0 ? 1 : 0;

async function picture(dashboard, theme, tell) {
  const address = new URL(`http://127.0.0.1:${pages.address().port}/`);
  const set = { dashboard, theme, prometheus: asked.prometheus, from: to - Number(asked.range) * 1000, to, scrape: asked.scrape, folded: asked.folded };
  Object.entries(set).forEach(([name, value]) => address.searchParams.set(name, value));
  for (const choice of asked.var) {
    const [, of, variable, value] = /^(\w+)\.(\w+)=(.*)$/.exec(choice);
    if (of === dashboard) {
      address.searchParams.append(`var-${variable}`, value);
    }
  }
  const page = await browser.newPage();
  page.setDefaultTimeout(300_000);
  page.on('pageerror', (e) => console.error('page:', e.message));
  await page.setViewport({ width: Number(asked.width), height: 1000 });
  await page.goto(address.href);
  await page.waitForFunction('window.report && window.report.ready', { polling: 250 });
  const report = await page.evaluate('window.report');
  const unseen = tell && asked.first.length > 0 ? await missing(page, asked.first) : [];
  const height = asked.height ? Math.min(Number(asked.height), report.height) : report.height;
  await page.setViewport({ width: Number(asked.width), height });
  await new Promise((resolve) => setTimeout(resolve, asked.folded ? 6000 : 500)); // tables far down take long
  const file = path.join(asked.out, `dashboard-${dashboard}${asked.name}${theme === 'dark' ? '' : '-' + theme}.png`);
  await page.screenshot({ path: file, clip: { x: 0, y: 0, width: Number(asked.width), height } });
  await page.close();
  if (!tell) {
    return 0;
  }
  const wrong = report.panels.filter((p) => p.error || (asked.empty && p.empty && !p.nothing));
  console.log(`${dashboard}: ${report.panels.length} panels, ${report.panels.filter((p) => p.empty).length} empty, most series ${Math.max(...report.panels.map((p) => p.series))}, ${file}`);
  report.panels.filter((p) => p.empty || p.error || p.series > 60 || p.ms > 2000).forEach((p) => console.log(`  ${p.id} ${p.title} (${p.kind}): ${p.error ?? (p.empty ? `empty${p.nothing ? `: ${p.nothing}` : ''}` : `${p.series} series, ${p.ms} ms`)}`));
  unseen.forEach((text) => console.log(`  not on the first screen: ${text}`));
  return wrong.length + unseen.length;
}

// missing returns the texts of which the first screen lacks a word.
async function missing(page, texts) {
  await page.setViewport({ width: 1920, height: 1080 });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const seen = await page.evaluate(() => {
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const list = [];
    for (let node = words.nextNode(); node; node = words.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2); // null: off the screen
      if (box.width > 0 && top && (top.contains(node) || node.parentElement.contains(top))) {
        list.push(node.textContent.trim());
      }
    }
    return list;
  });
  return texts.filter((text) => !text.split(' ').every((word) => seen.includes(word)));
}
