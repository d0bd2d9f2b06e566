// What Grafana does between the answers of a query and a panel: transformations,
// then the options of fields, all by @grafana/data.
import {
  applyFieldOverrides, booleanOverrideProcessor, dataLinksOverrideProcessor, displayNameOverrideProcessor, FieldConfigOptionsRegistry, getFieldDisplayName,
  identityOverrideProcessor, numberOverrideProcessor, standardTransformers, standardTransformersRegistry, stringOverrideProcessor, thresholdsOverrideProcessor,
  transformDataFrame, valueMappingsOverrideProcessor, type DataFrame, type GrafanaTheme2,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';
import type { Panel } from './model';

const transformers = new Map(Object.values(standardTransformers).map((t: any) => [t.id, { id: t.id, name: t.name, transformation: () => Promise.resolve(t) }])); // some have two names
standardTransformersRegistry.setInit(() => [...transformers.values()] as any);

// The options that every panel's fields have. What a panel adds is registered
// as it comes.
const standard: Record<string, (value: any, context: any, settings?: any) => any> = {
  displayName: displayNameOverrideProcessor, unit: stringOverrideProcessor, min: numberOverrideProcessor, max: numberOverrideProcessor,
  decimals: numberOverrideProcessor, color: identityOverrideProcessor, thresholds: thresholdsOverrideProcessor, mappings: valueMappingsOverrideProcessor,
  links: dataLinksOverrideProcessor, noValue: stringOverrideProcessor, fieldMinMax: booleanOverrideProcessor,
};

function registry(panel: Panel): FieldConfigOptionsRegistry {
  const item = (id: string, process: any, isCustom: boolean) =>
    ({ id, path: id.replace(/^custom\./, ''), name: id, isCustom, process, shouldApply: () => true, override: () => null, editor: () => null }) as any;
  const custom = new Set(Object.keys(panel.fieldConfig.defaults.custom ?? {}));
  for (const override of panel.fieldConfig.overrides) {
    override.properties.filter((p) => p.id.startsWith('custom.')).forEach((p) => custom.add(p.id.slice('custom.'.length)));
  }
  return new FieldConfigOptionsRegistry(() => [
    ...Object.entries(standard).map(([id, process]) => item(id, process, false)),
    ...[...custom].map((id) => item(`custom.${id}`, identityOverrideProcessor, true)),
  ]);
}

export async function prepare(panel: Panel, frames: DataFrame[], theme: GrafanaTheme2): Promise<DataFrame[]> {
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], frames));
  const ready = applyFieldOverrides(
    { data: transformed, fieldConfig: panel.fieldConfig, theme, timeZone: 'utc', replaceVariables: (text: string) => text, fieldConfigRegistry: registry(panel) },
  );
  let index = 0;
  ready.forEach((frame) =>
    frame.fields.forEach((field) => {
      field.state = { ...field.state, displayName: getFieldDisplayName(field, frame, ready) };
      if (field.type === 'number') {
        field.state.seriesIndex = index++;
      }
    }),
  );
  return ready;
}
