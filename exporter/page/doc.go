// Package page is the live page: what a node's rails do now, drawn for people.
//
// The server draws all of it, as HTML and SVG, so that the page is complete without JavaScript. With JavaScript it
// keeps a stream of events open and gets what changed of the drawing, once a second.
//
//	Reading (the series of /metrics) ┐
//	sampler: the last two minutes    ├─ builder → Snapshot → drawing ─┬→ GET /
//	probe: the last rounds           │   builder.go  snapshot.go  draw.go └→ stream.go → streams
//	doctor: at most once a minute    ┘
package page
