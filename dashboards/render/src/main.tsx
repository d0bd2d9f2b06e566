// A dashboard as Grafana would draw it, in its grid. What to draw is in the
// address: dashboard, theme, prometheus, from, to, scrape, folded=open,
// var-NAME=VALUE.
import { createTheme, ThemeContext, type GrafanaTheme2 } from '@grafana/data';
import { GlobalStyles, PanelChrome, PortalContainer } from '@grafana/ui';
import { Component, useEffect, useState, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { prepare } from './fields';
import { BarGaugePanel, isEmpty, Nothing, StatPanel, TablePanel, TimeSeriesPanel, type Drawn } from './kinds';
import type { Chosen, Dashboard, Panel } from './model';
import { Prometheus, timeRange } from './prometheus';
import { HeatmapPanel, TimelinePanel } from './unpublished';

const kinds: Record<string, (d: Drawn) => ReactNode> = {
  timeseries: TimeSeriesPanel, stat: StatPanel, bargauge: BarGaugePanel, table: TablePanel, heatmap: HeatmapPanel, 'state-timeline': TimelinePanel,
};

// What render.mjs reads.
interface Report {
  ready: boolean;
  height: number;
  panels: Array<{ id: number; title: string; kind: string; series: number; empty: boolean; nothing?: string; error?: string; ms: number }>;
}
const report: Report = ((window as any).report = { ready: false, height: 0, panels: [] });

const line = 30;
const gap = 8;
const place = (g: Panel['gridPos'], width: number) => {
  const column = (width + gap) / 24;
  return { left: g.x * column, top: g.y * (line + gap), width: g.w * column - gap, height: g.h * (line + gap) - gap };
};

// laidOut opens folded rows, if wanted, and makes of a repeated panel one for
// each value, as Grafana does; what is below moves down.
function laidOut(panels: Panel[], chosen: Chosen, open: boolean): Array<{ panel: Panel; chosen: Chosen }> {
  const all: Array<{ panel: Panel; chosen: Chosen }> = [];
  let down = 0;
  const put = (panel: Panel, y: number, more: Chosen = chosen) => all.push({ panel: { ...panel, gridPos: { ...panel.gridPos, y } }, chosen: more });
  for (const panel of panels) {
    put(panel, panel.gridPos.y + down);
    if (panel.repeat) {
      all.pop();
      const values = chosen[panel.repeat].values;
      const perLine = Math.min(panel.maxPerRow ?? 4, values.length);
      const w = 24 / perLine;
      values.forEach((value, i) => {
        const gridPos = { ...panel.gridPos, w, x: (i % perLine) * w };
        const only = { ...chosen, [panel.repeat!]: { ...chosen[panel.repeat!], values: [value], all: false, filledIn: value } };
        put({ ...panel, title: panel.title.replace(`$${panel.repeat}`, value), gridPos }, panel.gridPos.y + down + Math.floor(i / perLine) * panel.gridPos.h, only);
      });
      down += (Math.ceil(values.length / perLine) - 1) * panel.gridPos.h;
    }
    if (panel.type === 'row' && panel.collapsed && open) {
      const inner = laidOut(panel.panels!, chosen, open);
      const top = Math.min(...inner.map((i) => i.panel.gridPos.y));
      inner.forEach((i) => put(i.panel, i.panel.gridPos.y - top + panel.gridPos.y + down + 1, i.chosen));
      down += Math.max(...inner.map((i) => i.panel.gridPos.y + i.panel.gridPos.h)) - top;
    }
  }
  return all;
}

class Fence extends Component<{ onError: (e: string) => void; children: ReactNode }, { error?: string }> {
  state: { error?: string } = {};
  static getDerivedStateFromError = (e: Error) => ({ error: String(e.stack ?? e) });
  componentDidCatch = (e: Error) => this.props.onError(String(e));
  render = () => (this.state.error ? <pre style={{ fontSize: 9 }}>{this.state.error}</pre> : this.props.children);
}

async function draw() {
  const asked = new URLSearchParams(location.search);
  const theme = createTheme({ colors: { mode: asked.get('theme') === 'light' ? 'light' : 'dark' } });
  const dashboard: Dashboard = await (await fetch(`/provisioning/railscope-${asked.get('dashboard')}.json`)).json();
  const prometheus = new Prometheus(asked.get('prometheus')!, timeRange(Number(asked.get('from')), Number(asked.get('to'))), Number(asked.get('scrape') ?? 15));
  const wanted: Record<string, string[]> = {};
  asked.forEach((value, name) => name.startsWith('var-') && (wanted[name.slice(4)] ??= []).push(value));
  const chosen = await prometheus.variables(dashboard.templating.list, wanted);
  const shown = dashboard.annotations.list.filter((a) => !a.builtIn && a.enable);
  const events = (await Promise.all(shown.map(async (a) => (await prometheus.events(a, chosen)).map((e) => ({ ...e, colour: a.iconColor }))))).flat();
  const panels = laidOut(dashboard.panels, chosen, asked.get('folded') === 'open');
  const width = document.documentElement.clientWidth - 32;
  const drawn = new Map<number, Drawn>();
  for (const [i, p] of panels.entries()) {
    const box = place(p.panel.gridPos, width);
    if (p.panel.type === 'row') {
      continue;
    }
    const entry: Report['panels'][0] = { id: p.panel.id, title: p.panel.title, kind: p.panel.type, series: 0, empty: true, nothing: p.panel.fieldConfig.defaults.noValue, ms: 0 };
    report.panels.push(entry);
    const started = performance.now();
    try {
      const raw = await prometheus.query(p.panel, p.chosen, box.width);
      entry.empty = isEmpty(raw);
      entry.series = raw.reduce((n, f) => n + (f.fields.length > 0 ? 1 : 0), 0);
      const frames = await prepare(p.panel, raw, theme);
      drawn.set(i, { panel: p.panel, frames, width: box.width - 16, height: box.height - 32 - 16, theme, range: prometheus.range, events });
    } catch (e) {
      entry.error = String(e);
    }
    entry.ms = Math.round(performance.now() - started);
  }
  const bottom = Math.max(...panels.map((p) => p.panel.gridPos.y + p.panel.gridPos.h)) * (line + gap) + 100;
  report.height = bottom;
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, minHeight: bottom, padding: '8px 16px' }}>
        <Header dashboard={dashboard} chosen={chosen} theme={theme} />
        <div style={{ position: 'relative' }}>
          {panels.map(({ panel }, i) => (
            <div key={i} style={{ position: 'absolute', ...place(panel.gridPos, width) }}>
              {panel.type === 'row' ? <Row panel={panel} theme={theme} open={asked.get('folded') === 'open'} /> : <Chrome panel={panel} width={width} drawn={drawn.get(i)} error={report.panels.find((r) => r.id === panel.id)?.error} />}
            </div>
          ))}
        </div>
      </div>
      <PortalContainer />
    </ThemeContext.Provider>,
  );
  setTimeout(() => (report.ready = true), 1500);
}

function Chrome({ panel, width, drawn, error }: { panel: Panel; width: number; drawn?: Drawn; error?: string }) {
  const box = place(panel.gridPos, width);
  const Kind = kinds[panel.type];
  const without = !drawn || ((panel.type === 'timeseries' || panel.type === 'heatmap' || panel.type === 'state-timeline') && isEmpty(drawn.frames));
  const fail = (message: string) => (report.panels.find((r) => r.id === panel.id)!.error = message);
  return (
    <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height} hoverHeader={false}>
      {(w, h) => <Fence onError={fail}>{error ? <pre>{error}</pre> : without || !Kind ? <Nothing text={panel.fieldConfig.defaults.noValue} /> : <Kind {...drawn!} width={w} height={h} />}</Fence>}
    </PanelChrome>
  );
}

function Row({ panel, theme, open }: { panel: Panel; theme: GrafanaTheme2; open: boolean }) {
  const n = panel.panels?.length ?? 0;
  return (
    <div style={{ ...theme.typography.h5, lineHeight: `${line}px` }}>
      {panel.collapsed && !open ? '›' : '⌄'} {panel.title} {panel.collapsed && !open && <span style={{ color: theme.colors.text.secondary, fontWeight: 400 }}>({n} panels)</span>}
    </div>
  );
}

function Header({ dashboard, chosen, theme }: { dashboard: Dashboard; chosen: Chosen; theme: GrafanaTheme2 }) {
  const box = { border: `1px solid ${theme.colors.border.medium}`, padding: '3px 8px', marginRight: 8, background: theme.colors.background.secondary };
  const names = (c: Chosen[string]) => (c.all ? 'All' : c.values.join(' + ') || 'none');
  return (
    <div style={{ height: 76 }}>
      <div style={theme.typography.h4}>{dashboard.title}</div>
      <div style={{ marginTop: 8, display: 'flex' }}>
        <span style={box}>Data source <b>Prometheus</b></span>
        {Object.entries(chosen).map(([name, c]) => <span key={name} style={box}>{c.label} <b>{names(c)}</b></span>)}
        <span style={{ flex: 1 }} />
        {dashboard.links.map((l) => <span key={l.title} style={box}>{l.title}</span>)}
      </div>
    </div>
  );
}

draw().catch((e) => {
  report.panels.push({ id: 0, title: 'dashboard', kind: '', series: 0, empty: true, ms: 0, error: String(e.stack) });
  report.ready = true;
});
