package result

// Thresholds of findings. Everything that judges or prints a figure uses these. Those with an alert equal the
// alert's.
const (
	UnevenAbove     = 0.1  // imbalance from which a rail is named; from [rail.ImbalancedAbove] the round is degraded
	SharedBelow     = 0.9  // scaling below which rails share a bottleneck
	ScalingAbove    = 1.05 // scaling above which one of its measurements is wrong
	BottleneckBelow = 0.8  // scaling below which the round is degraded
	SlowerBelow     = 0.95 // fraction of TCP below which RDMA is slower
	SlowedBelow     = 0.7  // fraction of the best daily median below which a rail has become slow
	CriticalBelow   = 0.35 // fraction of the expected goodput below which most of the network is lost
	LossAbove       = 1e-4 // retransmissions per packet; a healthy fabric loses less
)

// reorderedTimes is how many times the packets in flight must arrive out of sequence per retransmission to prove
// reordering. After a lost packet, only those in flight behind it arrive out of sequence.
const reorderedTimes = 10

// Reordered reports whether packets overtook each other rather than were lost. inFlight is the largest number of
// packets in flight on a rail; 0: unknown.
func Reordered(outOfSequence, retransmissions, inFlight float64) bool {
	return outOfSequence > reorderedTimes*max(retransmissions, 1)*(1+inFlight)
}
