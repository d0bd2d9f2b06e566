// Stands in for @grafana/runtime, which is the running Grafana itself: what its
// data source for Prometheus asks of it when it reads answers.
export const config = { featureToggles: {} };
export const getDataSourceSrv = () => ({ getInstanceSettings: () => undefined });
