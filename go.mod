module github.com/railscope/railscope

go 1.26.0

exclude (
	github.com/prometheus/common v0.73.0
	github.com/prometheus/common v0.73.1
)

require (
	golang.org/x/sys v0.49.0
	golang.org/x/tools v0.52.0
)

require github.com/google/go-cmp v0.7.0
