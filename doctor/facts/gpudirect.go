package facts

import (
	"cmp"
	"path/filepath"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/sysfs"
)

// readGPUDirect reads how adapters reach the memory of GPUs, as the source gpudirect does. It opens no GPU.
func (g *Gatherer) readGPUDirect(r *reader) func(*Facts) {
	dir := filepath.Join(g.o.Procfs, "driver/nvidia")
	if !isDir(dir) {
		return nil
	}
	var d GPUDirect
	for _, module := range gpudirect.Modules() {
		if d.Module == "" && isDir(filepath.Join(g.o.Sysfs, "module", module)) {
			d.Module = module
		}
	}
	m := gpudirect.Machine{Peermem: new(d.Module != "")}
	m.GB10 = g.readModels(r, filepath.Join(dir, "gpus"), &d)
	m.GPUs, m.GPUsKnown = d.GPUs, len(r.unread) == 0
	release := r.text(g.o.Procfs, "sys/kernel/osrelease")
	if k, err := gpudirect.ParseKernel(release); err == nil {
		m.Kernel, d.Kernel = &k, clean(release)
	}
	if v, err := gpudirect.ParseDriver(r.text(dir, "version")); err == nil {
		m.Driver, d.Driver = &v, clean(v.Version)
	}
	mode, reason := m.Mode()
	if d.Mode, d.Reason = mode, string(reason); mode == "" && m.GPUsKnown {
		r.say("GPUDirect: neither %s nor the kernel's release shows whether dma-buf is possible; compare with nvidia-smi",
			filepath.Join(dir, "version"))
	}
	return func(f *Facts) { f.GPUDirect = d }
}

func (g *Gatherer) readModels(r *reader, dir string, d *GPUDirect) (unsupported bool) {
	entries, err := sysfs.List(dir)
	if err != nil {
		r.say("GPUDirect: %v; is the NVIDIA driver loaded? compare with nvidia-smi", err)
		return false
	}
	for _, e := range entries[:min(len(entries), maxPorts)] {
		text, _ := sysfs.ReadString(r.at(dir, e.Name, "information"))
		model := gpudirect.Model(text)
		if model == "" {
			r.say("GPUDirect: %s has no model; compare with nvidia-smi and dmesg", r.current())
			continue
		}
		d.GPUs++
		d.Model = cmp.Or(d.Model, clean(model))
		unsupported = unsupported || gpudirect.Unsupported(model)
	}
	return unsupported
}
