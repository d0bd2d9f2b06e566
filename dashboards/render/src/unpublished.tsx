// The panels that Grafana does not publish, heatmap and state timeline, drawn
// here: buckets, cells, colours and names as Grafana would have them, but by
// our own hand.
import { dateTimeFormat, FieldType, formattedValueToString, getValueFormat, type DataFrame, type Field, type GrafanaTheme2, type TimeRange } from '@grafana/data';
import { interpolateTurbo } from 'd3-scale-chromatic';
import type { Drawn } from './kinds';

const bottom = 22;

interface Box {
  left: number;
  width: number;
  height: number;
  range: TimeRange;
  theme: GrafanaTheme2;
}

const place = (b: Box, t: number) => b.left + ((t - b.range.from.valueOf()) / (b.range.to.valueOf() - b.range.from.valueOf())) * b.width;

function TimeAxis(box: Box) {
  const from = box.range.from.valueOf();
  const to = box.range.to.valueOf();
  const step = [1, 2, 5, 10, 15, 30, 60, 120].map((m) => m * 60_000).find((s) => ((to - from) / s) * 60 <= box.width) ?? 3_600_000;
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    ticks.push(t);
  }
  return (
    <g fill={box.theme.colors.text.primary} fontSize={12} textAnchor="middle">
      {ticks.map((t) => (
        <text key={t} x={place(box, t)} y={box.height + 16}>
          {dateTimeFormat(t, { format: 'HH:mm', timeZone: 'utc' })}
        </text>
      ))}
    </g>
  );
}

export function HeatmapPanel({ panel, frames, width, height, theme, range }: Drawn) {
  const frame: DataFrame | undefined = frames.find((f) => f.fields.length > 1);
  if (!frame) {
    return null;
  }
  const format = getValueFormat(panel.options.yAxis.unit);
  const name = (le: string) => (le === '+Inf' ? 'more' : formattedValueToString(format(Number(le))));
  const rows = frame.fields.filter((f) => f.type === FieldType.number);
  const time = frame.fields[0];
  const step = time.config.interval ?? 60_000;
  const top = 8;
  const box: Box = { left: 62, width: width - 70, height: height - bottom, range, theme };
  const high = (box.height - top) / rows.length;
  const most = Math.max(...rows.flatMap((r) => r.values as number[]).filter((v) => v > 0));
  const every = Math.ceil(14 / high);
  return (
    <svg width={width} height={height}>
      {rows.map((row, y) =>
        (row.values as number[]).map((v, i) =>
          v > 0 ? (
            <rect
              key={`${y}-${i}`} x={Math.max(box.left, place(box, (time.values as number[])[i] - step))} y={box.height - (y + 1) * high} height={Math.max(1, high - 1)}
              width={Math.max(1, (step / (range.to.valueOf() - range.from.valueOf())) * box.width - 1)} fill={interpolateTurbo(Math.pow(v / most, panel.options.color.exponent))}
            />
          ) : null,
        ),
      )}
      <g fill={theme.colors.text.primary} fontSize={12} textAnchor="end">
        {rows.map((row, y) =>
          y % every === 0 ? (
            <text key={row.name} x={box.left - 6} y={box.height - (y + 1) * high + 4}>
              {name(row.name)}
            </text>
          ) : null,
        )}
      </g>
      <TimeAxis {...box} />
    </svg>
  );
}

// pieces are the times for which a state held.
function pieces(time: Field, field: Field, until: number) {
  const all: Array<{ from: number; to: number; value: number }> = [];
  const step = time.config.interval ?? 60_000;
  (field.values as Array<number | null>).forEach((value, i) => {
    const from = (time.values as number[])[i];
    const last = all.at(-1);
    if (value === null || value === undefined) {
      return;
    }
    if (last && last.value === value && from - last.to < step / 2) {
      last.to = Math.min(until, from + step);
    } else {
      all.push({ from, to: Math.min(until, from + step), value });
    }
  });
  return all;
}

export function TimelinePanel({ panel, frames, width, height, theme, range }: Drawn) {
  const lines = frames.flatMap((f) => f.fields.filter((x) => x.type === FieldType.number).map((field) => ({ time: f.fields[0], field })));
  const longest = Math.max(...lines.map((l) => (l.field.state?.displayName ?? '').length), 1);
  const box: Box = { left: Math.min(width / 2, longest * 6.6 + 12), width: 0, height: height - bottom - 4, range, theme };
  box.width = width - box.left - 8;
  const high = box.height / Math.max(1, lines.length);
  return (
    <svg width={width} height={height} fontSize={12}>
      {lines.map(({ time, field }, y) => (
        <g key={y}>
          <text x={box.left - 6} y={y * high + high / 2 + 4} textAnchor="end" fill={theme.colors.text.primary}>
            {field.state?.displayName}
          </text>
          {pieces(time, field, range.to.valueOf()).map((p, i) => {
            const shown = field.display!(p.value);
            const x = place(box, p.from);
            const wide = place(box, p.to) - x;
            const text = formattedValueToString(shown);
            return (
              <g key={i}>
                <rect x={x} y={y * high + (high * (1 - panel.options.rowHeight)) / 2} width={wide} height={high * panel.options.rowHeight} fill={shown.color} fillOpacity={0.7} />
                {wide > text.length * 7 && high > 12 && (
                  <text x={x + 4} y={y * high + high / 2 + 4} fill={shown.color === 'transparent' ? theme.colors.text.primary : theme.colors.getContrastText(shown.color ?? '#000')}>
                    {text}
                  </text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      <TimeAxis {...box} />
    </svg>
  );
}
