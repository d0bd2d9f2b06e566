package failure

import "slices"

// Stages are all of them, in the order of a round.
func Stages() []Stage {
	return []Stage{StageHello, StageLease, StageOpen, StageConnect, StageReach, StageMTU, StageLatency, StageSolo,
		StageStatic, StageStealing,
		StageVerify, StageBaseline, StageRelease}
}

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{
		NoCgo, NoLibrary, NoUverbs, NoProvider, NoDevice, DevPerm, Memlock, PortDown, NoGID, GIDChanged, NoPeerRail,
		RTREinval, RTRUnreachable, RTRNoRoute,
		RetryExceeded, MTUBlackHole, RNR, RemoteAccess, LocalProt, Flush, DeviceFatal, Timeout,
		WorkerCrashed, WorkerTimeout, WorkerBackoff,
		PeerUnreachable, Unauthorized, TLS, Protocol, PeerLost, LeaseLost, Self,
		TCPRefused, TCPUnreachable, TCPBroken, NoAddress,
		DataMismatch,
		Busy, Cooldown, Budget, Draining, Canceled, Maintenance, PeerVersion,
		Other,
	}
}

// Known reports whether the stage is one of ours. Stages come over the network,
// too, and become labels.
func (s Stage) Known() bool { return slices.Contains(Stages(), s) }

// Known reports whether the reason is one of ours.
func (r Reason) Known() bool { return slices.Contains(Reasons(), r) }
