// What the page needs of a dashboard, in the words of Grafana's schema.
import type { DataTransformerConfig, FieldConfigSource } from '@grafana/data';

export interface Target {
  refId: string;
  expr: string;
  legendFormat: string;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets: Target[];
  options: any;
  fieldConfig: FieldConfigSource;
  transformations?: DataTransformerConfig[];
  interval?: string;
  repeat?: string;
  maxPerRow?: number;
  collapsed?: boolean;
  panels?: Panel[];
}

export interface Variable {
  name: string;
  label: string;
  type: string;
  query: string | { query: string };
  includeAll: boolean;
  allValue?: string;
  multi: boolean;
}

export interface Annotation {
  name: string;
  enable: boolean;
  hide: boolean;
  iconColor: string;
  builtIn?: number;
}

export interface Dashboard {
  uid: string;
  title: string;
  panels: Panel[];
  templating: { list: Variable[] };
  annotations: { list: Annotation[] };
  links: Array<{ title: string; type: string }>;
}

// Chosen is what is chosen in each variable, and what that is in a query.
export type Chosen = Record<string, { label: string; values: string[]; all: boolean; filledIn: string }>;
