// Holds the dashboards, both flavours, against Grafana's own types: the dashboard, and what
// each kind of panel has as options and as options of fields. It writes a
// TypeScript file of them and has the compiler look. Usage: node schema.mjs
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import path from 'node:path';

const kinds = { timeseries: 'timeseries', stat: 'stat', bargauge: 'bargauge', table: 'table', heatmap: 'heatmap', 'state-timeline': 'statetimeline' };

const lines = [
  "import type { Dashboard } from '@grafana/schema';",
  ...Object.entries(kinds).map(([, kind]) => `import type * as ${kind} from '../node_modules/@grafana/schema/dist/types/raw/composable/${kind}/panelcfg/x/types.gen';`),
  // JSON has the values of enums, not their names; and may leave out what Grafana has a default for.
  'type Plain<T> = T extends string ? `${T}` : T extends number ? (number extends T ? number : T | `${T}`) : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;',
  'type Loose<T> = { [K in keyof T]?: T[K] };',
  // What Grafana reads and writes and its type lacks: inputs of import, how annotations of Prometheus are worded, and the definition of a variable.
  'type Inputs = { __inputs?: unknown[]; __requires?: unknown[]; __elements?: object };',
  "type Of<K extends 'annotations' | 'templating'> = Plain<NonNullable<NonNullable<Dashboard[K]>['list']>[number]>;",
  "type OfPrometheus = { target?: { expr: string; interval: string; refId: string } } & { [K in 'expr' | 'step' | 'titleFormat' | 'textFormat' | 'tagKeys' | 'useValueForTime']?: unknown };",
  "type Lists = { annotations: { list: Array<Omit<Of<'annotations'>, 'target'> & OfPrometheus> }; templating: { list: Array<Of<'templating'> & { definition?: string }> } };",
];
// The units that there are, by the list in @grafana/data; what is after suffix: and si: may be anything.
const formats = new Set([...readFileSync('node_modules/@grafana/data/dist/esm/valueFormats/categories.mjs', 'utf8').matchAll(/\bid: "([^"]+)"/g)].map((m) => m[1]));
const unknown = new Set();
let panels = 0;
for (const flavour of ['provisioning', 'grafana.com']) {
  for (const file of readdirSync(path.join('..', flavour))) {
    const dashboard = JSON.parse(readFileSync(path.join('..', flavour, file), 'utf8'));
    const about = `${flavour}/${file}`;
    lines.push(`// ${about}`, `({ ...${JSON.stringify(dashboard)} } satisfies Omit<Plain<Dashboard>, 'annotations' | 'templating'> & Lists & Inputs);`);
    for (const p of dashboard.panels.flatMap((p) => (p.type === 'row' ? p.panels : [p]))) {
      panels++;
      const overridden = p.fieldConfig.overrides.flatMap((o) => o.properties).filter((x) => x.id === 'unit').map((x) => x.value);
      [p.fieldConfig.defaults.unit, ...overridden].filter((u) => u && !formats.has(u) && !/^(suffix|si):/.test(u)).forEach((u) => unknown.add(`${about}: ${p.title}: ${u} is no unit`));
      lines.push(`// ${about}: ${p.id} ${p.title}`, `(${JSON.stringify(p.options)} satisfies Loose<Plain<${kinds[p.type]}.Options>>);`);
      if (p.type !== 'stat' && p.type !== 'bargauge') {
        lines.push(`(${JSON.stringify(p.fieldConfig.defaults.custom)} satisfies Loose<Plain<${kinds[p.type]}.FieldConfig>>);`);
        for (const o of p.fieldConfig.overrides) {
          const custom = o.properties.filter((x) => x.id.startsWith('custom.')).map((x) => [x.id.slice('custom.'.length), x.value]);
          lines.push(`(${JSON.stringify(Object.fromEntries(custom))} satisfies Loose<Plain<${kinds[p.type]}.FieldConfig>>);`);
        }
      }
    }
  }
}
mkdirSync('out', { recursive: true });
writeFileSync('out/schema.ts', lines.join('\n') + '\n');
const options = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'esnext', '--moduleResolution', 'bundler', '--ignoreConfig', 'out/schema.ts'];
const compiler = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', ...options], { encoding: 'utf8', maxBuffer: 1 << 26 });
const of = (line) => lines.slice(0, line).findLast((l) => l.startsWith('//')) ?? '';
for (const m of compiler.stdout.split('\n').slice(0, 60)) {
  const at = /^out\/schema\.ts\((\d+),/.exec(m);
  console.log(at ? `${of(Number(at[1]))}\n  ${m.slice(0, 600)}` : m.slice(0, 400));
}
unknown.forEach((u) => console.log(u));
process.exitCode = compiler.status !== 0 || unknown.size > 0 || formats.size < 200 ? 1 : 0;
if (process.exitCode === 0) {
  console.log(`schema: ${panels} panels of both flavours are as @grafana/schema has them, in units of the ${formats.size} that there are`);
}
