package probe

import (
	"context"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
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

// BenchPlans returns what rounds of [Bench] with each of the lists of extras would need, in place of opts.Extras. The
// error is a [*result.Failure].
func BenchPlans(ctx context.Context, node *node.Node, opts options.Options, peer string,
	lists [][]result.Extra) (result.Plans, error) {
	return round.Plans(ctx, schedule.NewBench(node, opts, peer, func(result.Progress) {}), lists)
}
