// The panels that Grafana publishes: time series, stat, bar gauge and table.
import {
  DisplayValueAlignmentFactors, FieldType, getDisplayValueAlignmentFactors, getFieldDisplayValues, VizOrientation, type AnnotationEvent, type DataFrame, type FieldDisplay,
  type GrafanaTheme2, type TimeRange,
} from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, VizRepeater, type UPlotConfigBuilder } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import type * as React from 'react';
import type { Panel } from './model';

export interface Drawn {
  panel: Panel;
  frames: DataFrame[];
  width: number;
  height: number;
  theme: GrafanaTheme2;
  range: TimeRange;
  events: Array<AnnotationEvent & { colour: string }>;
}

export function TimeSeriesPanel({ panel, frames, width, height, theme, range, events }: Drawn) {
  const drawn = frames.filter((f) => f.fields.some((x) => x.values.length > 0)).map((f) => ({ ...f, fields: f.fields.map(finite) }));
  return (
    <TimeSeries frames={drawn} width={width} height={height} timeRange={range} timeZone="utc" legend={panel.options.legend} options={panel.options}>
      {(builder: UPlotConfigBuilder) => (regions(builder, events, theme), null)}
    </TimeSeries>
  );
}


// finite is what the panel, not the component, does with values that are no number.
const finite = (field: DataFrame['fields'][number]) =>
  field.type === FieldType.number ? { ...field, values: field.values.map((v) => (Number.isFinite(v) ? v : null)) } : field;

const done = new WeakSet<UPlotConfigBuilder>();

// regions draws annotations as Grafana does: a line where each begins and ends,
// and colour between.
function regions(builder: UPlotConfigBuilder, events: Drawn['events'], theme: GrafanaTheme2) {
  if (done.has(builder)) {
    return;
  }
  done.add(builder);
  builder.addHook('draw', (u) => {
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    for (const e of events) {
      const from = u.valToPos(e.time!, 'x', true);
      const to = u.valToPos(e.timeEnd!, 'x', true);
      const colour = theme.visualization.getColorByName(e.colour);
      u.ctx.strokeStyle = colour;
      u.ctx.setLineDash([5, 5]);
      for (const x of from === to ? [from] : [from, to]) {
        u.ctx.beginPath();
        u.ctx.moveTo(x, u.bbox.top);
        u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
        u.ctx.stroke();
      }
      u.ctx.globalAlpha = 0.1;
      u.ctx.fillStyle = colour;
      u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
      u.ctx.globalAlpha = 1;
    }
    u.ctx.restore();
  });
}

function values({ panel, frames, theme }: Drawn): FieldDisplay[] {
  return getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: (text: string) => text, theme, data: frames, timeZone: 'utc',
  });
}

export function StatPanel(drawn: Drawn) {
  const { panel, width, height, theme } = drawn;
  const all = values(drawn);
  const draw = (props: any) => (
    <BigValue
      value={props.value.display} count={props.count} width={props.width} height={props.height} theme={theme} colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
      justifyMode={panel.options.justifyMode} textMode={all.length === 1 && panel.options.textMode === 'auto' ? ('value' as any) : panel.options.textMode}
      alignmentFactors={props.alignmentFactors} text={panel.options.text} disableWideLayout={!panel.options.wideLayout}
    />
  );
  return <Repeated drawn={drawn} all={all} draw={draw} orientation={panel.options.orientation} width={width} height={height} grid />;
}

export function BarGaugePanel(drawn: Drawn) {
  const { panel, theme } = drawn;
  const draw = (props: any) => (
    <BarGauge
      value={props.value.display} field={props.value.field} display={props.value.view?.getFieldDisplayProcessor(props.value.colIndex)} width={props.width} height={props.height}
      theme={theme} orientation={props.orientation} displayMode={panel.options.displayMode} showUnfilled={panel.options.showUnfilled} valueDisplayMode={panel.options.valueMode}
      namePlacement={panel.options.namePlacement} alignmentFactors={props.alignmentFactors} itemSpacing={10}
    />
  );
  return <Repeated drawn={drawn} all={values(drawn)} draw={draw} orientation={panel.options.orientation} width={drawn.width} height={drawn.height} />;
}

function Repeated(props: { drawn: Drawn; all: FieldDisplay[]; draw: (p: any) => React.JSX.Element; orientation: VizOrientation; width: number; height: number; grid?: boolean }) {
  const { drawn, all, draw, orientation, width, height, grid } = props;
  const options = drawn.panel.options;
  return (
    <VizRepeater<FieldDisplay, DisplayValueAlignmentFactors>
      getValues={() => all} getAlignmentFactors={(v) => getDisplayValueAlignmentFactors(v)} renderValue={draw} width={width} height={height} source={drawn.frames}
      orientation={orientation} renderCounter={0} autoGrid={grid} itemSpacing={grid ? 3 : 10} minVizWidth={options.minVizWidth} minVizHeight={options.minVizHeight} maxVizHeight={options.maxVizHeight}
    />
  );
}

export function TablePanel({ panel, frames, width, height, range }: Drawn) {
  const frame = frames[0];
  if (!frame || frame.fields.length === 0 || frame.length === 0) {
    return <Nothing text={panel.fieldConfig.defaults.noValue} />;
  }
  return (
    <TableNG
      data={frame} width={width} height={height} noHeader={!panel.options.showHeader} cellHeight={panel.options.cellHeight} sortBy={panel.options.sortBy} initialRowIndex={undefined}
      resizable enableVirtualization={false} fieldConfig={panel.fieldConfig} timeRange={range} structureRev={1} showTypeIcons={false}
    />
  );
}

export function Nothing({ text }: { text?: string }) {
  return <div style={{ display: 'flex', height: '100%', alignItems: 'center', justifyContent: 'center' }}>{text || 'No data'}</div>;
}

export const isEmpty = (frames: DataFrame[]) => !frames.some((f) => f.fields.some((field) => field.type !== FieldType.time && field.values.some((v) => v !== null && !Number.isNaN(v))));
