package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
)

// checksOfAMD returns the checks of nodes whose GPUs have the driver amdgpu.
func checksOfAMD() []Check {
	return []Check{
		{"gpu_partition_unlike", warning, "an AMD GPU has another compute or memory partition mode than most GPUs of " +
			"its model", checkPartitions},
		{"gpu_xgmi_lost", warning, "an AMD GPU is not in the xGMI hive of most GPUs of its model, or has fewer links",
			checkXGMI},
		{"iommu_translates", warning, "the IOMMU translates the addresses of an AMD GPU, or of a rail beside AMD " +
			"GPUs (no `iommu=pt`)", checkIOMMU},
	}
}

// onAMD reports whether the driver of a GPU is amdgpu.
func onAMD(f *facts.Facts) bool {
	return slices.ContainsFunc(f.GPUs, func(g facts.GPU) bool { return g.AMD != nil })
}

// amdModels returns AMD's GPUs of each model that has at least three: a single one that differs is then the exception.
func amdModels(f *facts.Facts) (models [][]facts.GPU) {
	for i, g := range f.GPUs {
		same := func(o facts.GPU) bool { return o.AMD != nil && g.AMD != nil && o.AMD.Model == g.AMD.Model }
		if g.AMD == nil || g.AMD.Model == "" || slices.ContainsFunc(f.GPUs[:i], same) {
			continue
		}
		model := slices.DeleteFunc(slices.Clone(f.GPUs), func(o facts.GPU) bool { return !same(o) })
		if len(model) >= 3 {
			models = append(models, model)
		}
	}
	return models
}

// majority returns what more than half of the GPUs have, and how many of them; none if there is no such value.
func majority[T comparable](gpus []facts.GPU, value func(facts.GPU) T) (most T, count int) {
	counts := map[T]int{}
	for _, g := range gpus {
		v := value(g)
		counts[v]++
		if counts[v] > count {
			most, count = v, counts[v]
		}
	}
	if 2*count <= len(gpus) {
		var none T
		return none, 0
	}
	return most, count
}

func checkPartitions(f *facts.Facts, report reporter) {
	partitions := func(g facts.GPU) string { return g.AMD.Partitions }
	for _, gpus := range amdModels(f) {
		most, count := majority(gpus, partitions)
		if most == "" {
			continue
		}
		compute, memory, _ := strings.Cut(most, " ")
		for _, g := range gpus {
			if g.AMD.Partitions == "" || g.AMD.Partitions == most {
				continue
			}
			var fix []string
			if is, _, _ := strings.Cut(g.AMD.Partitions, " "); is != compute {
				fix = append(fix, "# while no process uses the GPU:",
					sh("echo %s > /sys/bus/pci/devices/%s/current_compute_partition", compute, g.Address))
			}
			if _, is, _ := strings.Cut(g.AMD.Partitions, " "); is != memory {
				fix = append(fix, note("amd-smi set --memory-partition %s, for all GPUs of the node; it takes effect "+
					"when amdgpu is loaded again", memory))
			}
			report(finding.Finding{Subject: "gpu " + g.Address, Fix: fix,
				Evidence: fmt.Sprintf("current_compute_partition and current_memory_partition are %s; %s of its model "+
					"(%s) have %s", g.AMD.Partitions, terminal.Count(count, "GPU"), g.AMD.Model, most),
				Why: "The mode decides how many devices a GPU is, and how many compute units and how much memory " +
					"each one has: a job on all GPUs of the node gets devices that differ."})
		}
	}
}

// minHive is the number of GPUs in a hive that makes another one of their model an exception. Fewer may be joined by a
// bridge on purpose.
const minHive = 3

func checkXGMI(f *facts.Facts, report reporter) {
	for _, gpus := range amdModels(f) {
		hive, count := majority(gpus, func(g facts.GPU) string { return g.AMD.Hive })
		if hive == "" || hive == facts.NoHive || count < minHive {
			continue
		}
		others := fmt.Sprintf("%d GPUs of its model (%s) are in hive %s", count, gpus[0].AMD.Model, hive)
		links, linked := majority(gpus, linksToEach)
		for _, g := range gpus {
			var evidence string
			all := links * (len(g.AMD.Links) - 1)
			switch {
			case g.AMD.Hive == facts.NoHive:
				evidence = "it has no xgmi_hive_info; " + others
			case g.AMD.Hive != "" && g.AMD.Hive != hive:
				evidence = fmt.Sprintf("it is in hive %s; %s", g.AMD.Hive, others)
			case len(g.AMD.Links) > 0 && sum(g.AMD.Links) < all:
				evidence = fmt.Sprintf("xgmi_num_links adds up to %d; %d GPUs of its model (%s) have %d, %d to each "+
					"GPU", sum(g.AMD.Links), linked, g.AMD.Model, all, links)
			default:
				continue
			}
			report(finding.Finding{Subject: "gpu " + g.Address, Evidence: evidence,
				Why: "Its transfers to other GPUs of the node use fewer links, or PCIe, and collectives wait for them.",
				Fix: hands(f, note("see why: dmesg | grep -i xgmi; then restart the node; if that does not help, the "+
					"GPU or its board has a fault"))})
		}
	}
}

// linksToEach returns how many xGMI links the GPU has to each other GPU of its hive; 0 if these differ, as in an
// MI250X, or are unknown. The number for the GPU itself is 0.
func linksToEach(g facts.GPU) (links int) {
	peers := 0
	for _, n := range g.AMD.Links {
		if n > 0 && links > 0 && n != links {
			return 0
		}
		if n > 0 {
			links = n
			peers++
		}
	}
	if peers < len(g.AMD.Links)-1 {
		return 0
	}
	return links
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

// checkIOMMU judges the default domains of IOMMU groups. In a virtual machine the host decides, and an IOMMU without
// passthrough is a choice where there are no rails.
func checkIOMMU(f *facts.Facts, report reporter) {
	if len(f.Rails) == 0 || f.PCI.Virtual || f.Guest() {
		return
	}
	var translated []string
	for _, d := range f.PCI.Domains {
		if strings.HasPrefix(d.Type, "DMA") {
			translated = append(translated, fmt.Sprintf("%s (%s)", d.Address, d.Type))
		}
	}
	if len(translated) == 0 {
		return
	}
	report(finding.Finding{Evidence: "IOMMU groups that are not of type identity (passthrough): " + listed(translated),
		Why: "Every access of a GPU or an adapter to memory, and to each other, is translated. RCCL warns that a " +
			"node without iommu=pt may become unstable or hang.",
		Fix: []string{"# add iommu=pt to the command line of the kernel (GRUB_CMDLINE_LINUX in /etc/default/grub, " +
			"then update-grub, or grub2-mkconfig -o /boot/grub2/grub.cfg), and restart the node"}})
}
