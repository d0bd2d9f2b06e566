import path from 'node:path';
import { defineConfig } from 'vite';

const prometheus = path.resolve('node_modules/@grafana/prometheus/dist/esm');

// @grafana/prometheus offers only the whole data source, editor and all; what
// reads answers, escapes values and makes annotations is taken by its file.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^prometheus\/(.*)$/, replacement: `${prometheus}/$1.mjs` },
      { find: /^.*\/AnnotationQueryEditor\.mjs$/, replacement: path.resolve('src/nothing.ts') },
      { find: /^.*\/(ReactMonacoEditor|OpenLayersProvider)\.mjs$|^monaco-editor.*$/, replacement: path.resolve('src/nothing.ts') }, // large, and not drawn
      { find: '@grafana/runtime', replacement: path.resolve('src/runtime.ts') },
    ],
  },
  build: { outDir: 'dist', chunkSizeWarningLimit: 10_000 },
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}' },
  esbuild: { jsx: 'automatic' },
});
