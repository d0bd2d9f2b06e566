package netdev

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// readFEC is the type of [ethtool.ReadFEC].
type readFEC func(netdev string) (ethtool.FEC, error)

// readFEC emits the mode of forward error correction, and what it counted as far as the statistics do not have it.
func (l *locked) readFEC(r *collector.Reading) {
	mode, err := l.device.FECMode()
	failUnlessUnsupported(r, err)
	if mode != "" {
		r.Record(l.table.fecMode, 1, nil, collector.RailLabels(l.key.rails, l.key.name, mode)...)
	}
	if l.fec == nil {
		return
	}
	fec, err := l.fec(l.key.name)
	failUnlessUnsupported(r, err)
	l.recordTotal(r, l.table.fecCorrected, fec.Corrected)
	l.recordTotal(r, l.table.fecUncorrectable, fec.Uncorrectable)
	l.recordTotal(r, l.table.fecBits, fec.Bits)
	for _, b := range mergeBins(fec.Bins) {
		errors := strconv.FormatUint(uint64(b.Low), 10)
		if b.High > b.Low {
			errors = fmt.Sprintf("%d-%d", b.Low, b.High)
		}
		r.Record(l.table.fecCodewords, float64(b.Codewords), nil,
			collector.RailLabels(l.key.rails, l.key.name, errors)...)
		for lane, n := range b.Lanes {
			r.Record(l.table.fecLaneCodewords, float64(n), nil,
				collector.RailLabels(l.key.rails, l.key.name, errors, strconv.Itoa(lane))...)
		}
	}
}

// failUnlessUnsupported reports an error, except that the driver or the kernel lacks what was asked for.
func failUnlessUnsupported(r *collector.Reading, err error) {
	if err != nil && sysfs.Reason(err) != sysfs.ReasonUnsupported {
		r.Fail(err)
	}
}

// recordTotal records a number that is reported and not one of the driver's statistics.
func (l *locked) recordTotal(r *collector.Reading, row *collector.Metric, n *uint64) {
	if n != nil && !slices.ContainsFunc(l.columns, func(c column) bool { return c.statistic.row == row }) {
		r.Record(row, float64(*n), nil, l.labels...)
	}
}

// mergeBins merges the bins of one class of numbers of errors, since 16 for each rail would be too many series. Codes
// that correct 7 or 15 symbols have a class that ends there.
func mergeBins(bins []ethtool.FECBin) (merged []ethtool.FECBin) {
	class := func(b ethtool.FECBin) int {
		return slices.IndexFunc([]uint32{0, 3, 7, 11, 15}, func(last uint32) bool { return b.High <= last })
	}
	for _, b := range bins {
		n := len(merged) - 1
		if n < 0 || class(merged[n]) != class(b) || len(merged[n].Lanes) != len(b.Lanes) {
			b.Lanes = slices.Clone(b.Lanes)
			merged = append(merged, b)
			continue
		}
		merged[n].High, merged[n].Codewords = b.High, merged[n].Codewords+b.Codewords
		for lane := range b.Lanes {
			merged[n].Lanes[lane] += b.Lanes[lane]
		}
	}
	return merged
}
