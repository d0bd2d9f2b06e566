package facts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/verbsabi"
)

// readDevices opens the device of each rail, as a program does first.
func (g *Gatherer) readDevices(r *reader, rails []rail.Rail) func(*Facts) {
	class := filepath.Join(g.o.Sysfs, "class/infiniband_verbs")
	entries, err := sysfs.List(class)
	d := Devices{Class: err == nil, Known: err == nil || g.kernel.Live, NodeDir: isDir(g.own("dev")),
		RDMACM: sysfs.Exists(g.own("dev/infiniband/rdma_cm")) == nil}
	if err != nil && !absent(err) {
		d.Known = false
		r.say("RDMA devices: %v; mount sysfs", err)
	}
	var ours []string
	for _, one := range rails[:min(len(rails), maxPorts)] {
		ours = append(ours, one.Device)
	}
	// Ports of one device are adjacent.
	d.Nodes = g.kernel.RDMA.Nodes(slices.Compact(ours)...)
	// The kernel does not sort the entries.
	slices.SortFunc(entries, func(a, b sysfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, "uverbs") {
			continue
		}
		device, err := sysfs.ReadString(class, e.Name, "ibdev")
		if err != nil && !absent(err) {
			r.say("RDMA devices: %v; see dmesg", err)
		}
		if err != nil || !slices.Contains(ours, device) {
			continue
		}
		u := g.openUverbs(device, e.Name)
		u.ABI = r.uint(class, e.Name, "abi_version")
		if u.State == UverbsOther {
			r.say("%s of %s: %s; is the device being reset? see dmesg", u.Node, device, u.Err)
		}
		d.Uverbs = append(d.Uverbs, u)
	}
	slices.SortFunc(d.Uverbs, func(a, b Uverbs) int { return strings.Compare(a.Device, b.Device) })
	return func(f *Facts) { f.Devices = d }
}

func (g *Gatherer) openUverbs(device, name string) Uverbs {
	u := Uverbs{Device: device, Node: "/dev/infiniband/" + name, State: UverbsGood}
	path := g.own(u.Node)
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil {
		u.Mode = fmt.Sprintf("mode %04o, owner %d, group %d", st.Mode&0o7777, st.Uid, st.Gid)
		if g.kernel.OpenDevice != nil {
			err = g.kernel.OpenDevice(path)
		}
	}
	switch exists := u.Mode != ""; {
	case err == nil:
		return u
	case !exists && errors.Is(err, unix.ENOENT):
		u.State = UverbsMissing
	case exists && errors.Is(err, unix.EACCES):
		u.State = UverbsDenied
	case exists && errors.Is(err, unix.EPERM):
		u.State = UverbsRules
	default:
		u.State = UverbsOther
	}
	u.Err = err.Error()
	return u
}

// readMemlock reads how much memory this process may lock, and whether it is exempt. Both must be known.
func (g *Gatherer) readMemlock(r *reader) func(*Facts) {
	r.at(g.o.Procfs, "self/limits")
	self, err := proc.Self(g.o.Procfs)
	if absent(err) && !g.kernel.Live {
		return nil
	}
	m := Memlock{Known: true}
	if err == nil {
		m.Soft, m.Hard, err = proc.LockedMemory(g.o.Procfs, self)
	}
	var set uint64
	if err == nil {
		set, err = proc.Capabilities(g.o.Procfs, self)
	}
	if err != nil {
		r.say("limits on locked memory: %v; compare with `ulimit -l`", err)
		return nil
	}
	m.Exempt = set>>unix.CAP_IPC_LOCK&1 == 1 && proc.FirstUsers(g.o.Procfs, self)
	return func(f *Facts) { f.Memlock = m }
}

// readGPUDirect reads how adapters access GPU memory, as the source gpudirect does. It opens no GPU.
func (g *Gatherer) readGPUDirect(r *reader) func(*Facts) {
	nvidia, amd := readNVIDIADirect(g, r), readAMDDirect(g, r)
	switch {
	case nvidia == nil && amd == nil:
		return nil
	case nvidia == nil:
		return func(f *Facts) { f.GPUDirect = *amd }
	case amd != nil:
		if mode, _ := gpudirect.Worst(nvidia.Mode, "", amd.Mode, ""); mode != nvidia.Mode {
			return func(f *Facts) { f.GPUDirect = *amd }
		}
	}
	return func(f *Facts) { f.GPUDirect = *nvidia }
}

// readAMDDirect returns nil without a GPU of amdgpu.
func readAMDDirect(g *Gatherer, r *reader) *GPUDirect {
	gpus, err := amdgpu.NewFinder(g.o.Sysfs).GPUs(time.Now())
	r.fail(err)
	gpus = amdgpu.WithoutIntegrated(gpus)
	if len(gpus) == 0 {
		return nil
	}
	r.at(g.o.Procfs, "kallsyms") // the slowest of the files
	m, err := g.direct.Read(time.Now())
	r.fail(err)
	d := &GPUDirect{AMD: true}
	m.GPUs, m.GPUsKnown = len(gpus), true
	for _, gpu := range gpus {
		r.at(g.o.Sysfs, "bus/pci/devices", gpu.PCIAddress, amdgpu.VRAMVisible)
		small, err := gpudirect.IsSmallBAR(gpu)
		r.fail(err)
		m.GPUsKnown = m.GPUsKnown && err == nil
		m.SmallBAR = m.SmallBAR || small
	}
	d.GPUs, d.Driver = m.GPUs, clean(amdgpu.NewFinder(g.o.Sysfs).Driver())
	d.Kernel = clean(r.text(g.o.Procfs, "sys/kernel/osrelease"))
	d.Mode, d.Reason = m.Mode()
	if d.Mode == "" && m.GPUsKnown {
		r.say("GPUDirect: whether adapters reach the memory of AMD's GPUs is not known: compare with grep -E "+
			"'PCI_P2PDMA|DMABUF_MOVE_NOTIFY' %s", filepath.Join(g.o.Rootfs, "boot/config-"+d.Kernel))
	}
	return d
}

// readNVIDIADirect returns nil without NVIDIA's driver.
func readNVIDIADirect(g *Gatherer, r *reader) *GPUDirect {
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
	d.Mode, d.Reason = mode, reason
	if mode == "" && m.GPUsKnown {
		r.say("GPUDirect: neither %s nor the kernel's release shows whether dma-buf is possible; compare with "+
			"nvidia-smi", filepath.Join(dir, "version"))
	}
	return &d
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

func (g *Gatherer) configLines(dir string, each func(path, line string)) error {
	const most = 256 // maximum number of files
	entries, err := sysfs.List(g.own(dir))
	for _, e := range entries[:min(len(entries), most)] {
		text, _ := sysfs.ReadString(g.own(dir), e.Name)
		for line := range strings.Lines(text) {
			each(filepath.Join(dir, e.Name), strings.TrimSpace(line))
		}
	}
	return err
}

// libraryDirs returns the directories that the dynamic linker searches: the usual ones, and those in /etc/ld.so.conf.d.
func (g *Gatherer) libraryDirs() []string {
	const most = 128
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib", "/usr/local/lib64"}
	if g.kernel.Live {
		dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	}
	_ = g.configLines("/etc/ld.so.conf.d", func(_, line string) { // the directory need not exist
		if strings.HasPrefix(line, "/") && len(dirs) < most {
			dirs = append(dirs, line)
		}
	})
	return slices.DeleteFunc(dirs, func(d string) bool { return !isDir(g.own(d)) })
}

func (g *Gatherer) readVerbs(rails []Rail) work {
	if g.root == "" {
		return nil
	}
	return func(r *reader) func(*Facts) {
		dirs := g.libraryDirs()
		v := Verbs{Known: len(dirs) > 0}
		if i := slices.IndexFunc(dirs, func(d string) bool {
			return sysfs.Exists(g.own(d+"/libibverbs.so.1")) == nil
		}); i >= 0 {
			v.Library = filepath.Join(dirs[i], "libibverbs.so.1")
		}
		configs, err := g.providerConfigs()
		if err != nil {
			r.say("providers of libibverbs: %v; run doctor as root", err)
			return func(f *Facts) { f.Verbs = v }
		}
		for _, rail := range rails {
			found := func(p Provider) bool { return p.Name == rail.Provider }
			if rail.Provider != "" && !slices.ContainsFunc(v.Providers, found) {
				v.Providers = append(v.Providers, g.findProvider(rail.Provider, dirs, configs))
			}
		}
		return func(f *Facts) { f.Verbs = v }
	}
}

// findProvider finds a provider's library through its configuration, in libibverbs' own directories, or in all of dirs.
func (g *Gatherer) findProvider(name string, dirs []string, configs map[string]string) Provider {
	p := Provider{Name: name}
	for driver, path := range configs {
		if base := filepath.Base(driver); base == name || base == "lib"+name {
			p.Config = path
			if filepath.IsAbs(driver) {
				p.Library = g.firstMatch(driver + "-rdmav*.so")
			}
		}
	}
	for _, sub := range []string{"libibverbs", ""} {
		for _, d := range dirs {
			if p.Library == "" {
				p.Library = g.firstMatch(filepath.Join(d, sub, "lib"+name+"-rdmav*.so"))
			}
		}
	}
	if p.Library != "" {
		p.ABI = verbsabi.Read(g.own(p.Library), name)
	}
	return p
}

// providerConfigs returns the drivers in /etc/libibverbs.d (rdma-core, libibverbs/dynamic_driver.c).
func (g *Gatherer) providerConfigs() (map[string]string, error) {
	names := map[string]string{}
	err := g.configLines("/etc/libibverbs.d", func(path, line string) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "driver" {
			names[words[1]] = path
		}
	})
	if absent(err) {
		err = nil
	}
	return names, err
}

func (g *Gatherer) firstMatch(pattern string) string {
	found, _ := fs.Glob(os.DirFS(g.root), strings.TrimPrefix(pattern, "/")) // an invalid pattern matches nothing
	if len(found) == 0 {
		return ""
	}
	return "/" + found[0]
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
