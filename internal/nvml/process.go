package nvml

import (
	"cmp"
	"slices"
)

// SumByProcess adds up what each process holds, the largest first, and counts the processes for which that is not
// known. A process on both lists of a GPU counts once; one with several MIG instances holds the sum of them. It sorts
// list.
func SumByProcess(list []Process) (known []Process, unknown int) {
	slices.SortFunc(list, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.GPUInstance, b.GPUInstance),
			cmp.Compare(a.ComputeInstance, b.ComputeInstance), cmp.Compare(b.Memory, a.Memory))
	})
	for i := 0; i < len(list); {
		sum := Process{PID: list[i].PID}
		complete := true
		for first := i; i < len(list) && list[i].PID == sum.PID; i++ {
			if i > first && list[i].GPUInstance == list[i-1].GPUInstance &&
				list[i].ComputeInstance == list[i-1].ComputeInstance {
				continue // the other list has it too
			}
			complete = complete && list[i].Memory != NotAvailable
			sum.Memory += list[i].Memory
		}
		if complete {
			known = append(known, sum)
		} else {
			unknown++
		}
	}
	slices.SortFunc(known, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.PID, b.PID))
	})
	return known, unknown
}
