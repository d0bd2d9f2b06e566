module github.com/railscope/railscope/test/browser

go 1.26.0

exclude (
	github.com/prometheus/common v0.73.0
	github.com/prometheus/common v0.73.1
)

replace github.com/railscope/railscope => ../../

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
	github.com/railscope/railscope v0.0.0-00010101000000-000000000000
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/tools v0.52.0 // indirect
)
