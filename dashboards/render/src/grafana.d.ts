/// <reference types="vite/client" />
// The files of @grafana/prometheus that vite.config.ts names.
declare module 'prometheus/result_transformer' {
  import type { DataFrame } from '@grafana/data';
  export function transformV2(response: { data: DataFrame[] }, request: { targets: object[] }, options: object): { data: DataFrame[] };
}
declare module 'prometheus/escaping' {
  export function interpolateQueryExpr(value: string | string[], variable: { multi: boolean; includeAll: boolean }): string;
}
declare module 'prometheus/annotations' {
  import type { AnnotationEvent, AnnotationQuery, DataFrame } from '@grafana/data';
  import type { Observable } from 'rxjs';
  export function PrometheusAnnotationSupport(ds: unknown): {
    prepareAnnotation(json: object): AnnotationQuery<{ expr: string; interval: string; refId: string }>;
    processEvents(annotation: object, frames: DataFrame[]): Observable<AnnotationEvent[]>;
  };
}
declare module 'd3-scale-chromatic' {
  export function interpolateTurbo(part: number): string;
}
