// Asks Prometheus what Grafana's back end asks for a dashboard, and gives the
// answers to Grafana's own front end for Prometheus, which makes of them what
// panels draw.
import { createDataFrame, dateTime, FieldType, rangeUtil, type AnnotationEvent, type DataFrame, type Labels, type TimeRange } from '@grafana/data';
import { PrometheusAnnotationSupport } from 'prometheus/annotations';
import { interpolateQueryExpr } from 'prometheus/escaping';
import { transformV2 } from 'prometheus/result_transformer';
import { firstValueFrom } from 'rxjs';
import type { Annotation, Chosen, Panel, Target, Variable } from './model';

type Sample = [number, string];
type Result = Array<{ metric: Labels; value?: Sample; values?: Sample[] }>;

export class Prometheus {
  constructor(private base: string, readonly range: TimeRange, private scrapeInterval: number) {}

  private async get(path: string, params: Record<string, string>): Promise<any> {
    const body = await (await fetch(`${this.base}/api/v1/${path}?${new URLSearchParams(params)}`)).json();
    if (body.status !== 'success') {
      throw new Error(`${body.error}: ${params.query ?? path}`);
    }
    return body.data;
  }

  private seconds(at: 'from' | 'to') {
    return String(this.range[at].valueOf() / 1000);
  }

  // variables asks for the values of each, within those before it. Chosen is
  // what is wanted, else all, else the first: as Grafana does on opening.
  async variables(list: Variable[], wanted: Record<string, string[]>): Promise<Chosen> {
    const chosen: Chosen = {};
    for (const v of list.filter((v) => v.type === 'query')) {
      const [, selector, label] = /^label_values\((.*), *(\w+)\)$/.exec((v.query as { query: string }).query)!;
      const within = { 'match[]': interpolate(selector, chosen), start: this.seconds('from'), end: this.seconds('to') };
      const there: string[] = (await this.get(`label/${label}/values`, within)).sort(new Intl.Collator('en', { numeric: true }).compare);
      const picked = (wanted[v.name] ?? []).filter((value) => there.includes(value));
      const all = v.includeAll && picked.length === 0;
      const values = all ? there : picked.length > 0 ? picked : there.slice(0, 1);
      chosen[v.name] = { label: v.label, values, all, filledIn: all && v.allValue ? v.allValue : interpolateQueryExpr(values, v) };
    }
    return chosen;
  }

  // query asks the queries of a panel that is width pixels wide.
  async query(panel: Panel, chosen: Chosen, width: number): Promise<DataFrame[]> {
    const scrape = this.scrapeInterval;
    const least = Math.max(panel.interval ? rangeUtil.intervalToSeconds(panel.interval) : 0, scrape);
    const step = rangeUtil.calculateInterval(this.range, Math.max(100, Math.round(width)), `${least}s`).intervalMs / 1000;
    const builtIn = {
      __interval: `${step}s`,
      __rate_interval: `${Math.max(step + scrape, 4 * scrape)}s`,
      __range: `${Math.round((this.range.to.valueOf() - this.range.from.valueOf()) / 1000)}s`,
    };
    const frames = await Promise.all(panel.targets.map((t) => this.ask(t, interpolate(t.expr, chosen, builtIn), step)));
    return transformV2({ data: frames.flat() }, { targets: panel.targets }, {}).data;
  }

  private async ask(target: Target, query: string, step: number): Promise<DataFrame[]> {
    const floor = (at: 'from' | 'to') => String(Math.floor(Number(this.seconds(at)) / step) * step);
    const data: { result: Result } = target.instant
      ? await this.get('query', { query, time: this.seconds('to') })
      : await this.get('query_range', { query, start: floor('from'), end: floor('to'), step: String(step) });
    const frames = data.result.map((r) => series(target, r.metric, r.values ?? [r.value!], step));
    return frames.length > 0 ? frames : [createDataFrame({ refId: target.refId, fields: [] })];
  }

  // events are what an annotation shows.
  async events(annotation: Annotation, chosen: Chosen): Promise<AnnotationEvent[]> {
    const support = PrometheusAnnotationSupport(undefined);
    const prepared = support.prepareAnnotation(structuredClone(annotation));
    const { expr, interval, refId } = prepared.target!;
    const step = rangeUtil.intervalToSeconds(interval);
    const frames = await this.ask({ refId, expr, legendFormat: '', format: 'time_series', instant: false }, interpolate(expr, chosen), step);
    frames[0].meta = { executedQueryString: `Expr: ${expr}\nStep: ${interval}` };
    return firstValueFrom(support.processEvents(prepared, frames));
  }
}

// interpolate fills in variables as they are in queries.
export function interpolate(text: string, chosen: Chosen, builtIn: Record<string, string> = {}): string {
  return text.replace(/\$(\w+)|\$\{(\w+)\}/g, (whole, a, b) => builtIn[a ?? b] ?? chosen[a ?? b]?.filledIn ?? whole);
}

// series is one as Grafana's back end hands it on: where a step has no value
// there is none.
function series(target: Target, labels: Labels, samples: Sample[], step: number): DataFrame {
  const name = target.legendFormat ? target.legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '') : undefined;
  return createDataFrame({
    refId: target.refId,
    name,
    fields: [
      { name: 'Time', type: FieldType.time, values: samples.map(([t]) => t * 1000), config: target.instant ? {} : { interval: step * 1000 } },
      { name: 'Value', type: FieldType.number, values: samples.map(([, v]) => Number(v.replace('Inf', 'Infinity'))), labels, config: { displayNameFromDS: name } },
    ],
  });
}

export function timeRange(from: number, to: number): TimeRange {
  const range = { from: dateTime(from), to: dateTime(to) };
  return { ...range, raw: range };
}
