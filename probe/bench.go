package probe

import (
	"context"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Bench runs one full round with a peer now. progress is called from several goroutines, but not concurrently.
func Bench(ctx context.Context, node *node.Node, opts options.Options, peer string,
	progress func(result.Progress)) result.Result {
	if opts.Name != "" {
		node.SetName(opts.Name)
	}
	node.SetBudget(opts.Budget)
	return node.CompareWithPast(schedule.NewBench(node, opts, peer, progress).Run(ctx), true)
}
