package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestManifests checks every installation, independent of its values.
func TestManifests(t *testing.T) {
	for from, list := range rendered(t) {
		t.Run(from, func(t *testing.T) {
			ds := only[apps.DaemonSet](t, list)
			pod := ds.Spec.Template.Spec
			checkNames(t, list)
			checkSelectors(t, list, ds)
			checkSecurity(t, list, pod)
			checkPorts(t, list, pod)
			checkVolumes(t, list, pod)
			checkMonitoring(t, list)
		})
	}
}

// checkNames: no two resources have the same kind and name, and all are in one namespace.
func checkNames(t *testing.T, list []object) {
	t.Helper()
	seen, namespaces := map[string]bool{}, map[string]bool{}
	for _, o := range list {
		what := o.kind + " " + o.name
		if seen[what] {
			t.Errorf("%s twice", what)
		}
		seen[what] = true
		if len(o.name) > 63 || o.name == "" {
			t.Errorf("%s: a name of %d letters", what, len(o.name))
		}
		if o.kind == "Namespace" {
			namespaces[o.name] = true
		} else {
			namespaces[o.namespace] = true
		}
	}
	if len(namespaces) != 1 || namespaces[""] {
		t.Errorf("in the namespaces %v", namespaces)
	}
}

// checkSelectors: every selector of pods selects these pods.
func checkSelectors(t *testing.T, list []object, ds *apps.DaemonSet) {
	t.Helper()
	selects := map[string]map[string]string{"DaemonSet": ds.Spec.Selector.MatchLabels}
	for _, s := range all[core.Service](list) {
		selects["Service "+s.Name] = s.Spec.Selector
	}
	for _, m := range all[monitoring.PodMonitor](list) {
		selects["PodMonitor"] = m.Spec.Selector.MatchLabels
	}
	for _, m := range all[monitoring.ServiceMonitor](list) {
		var selected []string
		for _, s := range all[core.Service](list) {
			if maps.Equal(s.Labels, mergeLabels(s.Labels, m.Spec.Selector.MatchLabels)) {
				selected = append(selected, s.Name)
			}
		}
		if len(selected) != 1 || !strings.HasSuffix(selected[0], "-metrics") {
			t.Errorf("the ServiceMonitor selects %q", selected)
		}
	}
	for who, labels := range selects {
		if len(labels) == 0 {
			t.Errorf("%s selects everything", who)
		}
		for k, v := range labels {
			if ds.Spec.Template.Labels[k] != v {
				t.Errorf("%s wants %s=%s, pods have %v", who, k, v, ds.Spec.Template.Labels)
			}
		}
	}
}

// checkSecurity: the permissions of a pod, and that it has no more than its task needs.
func checkSecurity(t *testing.T, list []object, pod core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	probes, process := hasPort(c, "probe"), runs(c, "source.process")
	_, plugin := rdmaResource(c)
	privileged := isTrue(c.SecurityContext.Privileged)
	devices := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/dev/infiniband"
	})
	root := probes || process || len(added(c)) > 0
	for what, is := range map[string]bool{
		"one container":                    len(pod.Containers) == 1 && len(pod.InitContainers) == 0,
		"the network of the host":          pod.HostNetwork && pod.DNSPolicy == core.DNSClusterFirstWithHostNet,
		"no token":                         isFalse(pod.AutomountServiceAccountToken),
		"the pid namespace of the host":    pod.HostPID == process,
		"no IPC of the host":               !pod.HostIPC,
		"privileged with the device files": privileged == devices,
		"devices exactly where it probes":  probes == (privileged || plugin) && !(privileged && plugin),
		"a read-only root file system":     isTrue(c.SecurityContext.ReadOnlyRootFilesystem),
		"seccomp": pod.SecurityContext.SeccompProfile.Type ==
			core.SeccompProfileTypeRuntimeDefault,
		"no escalation": privileged || isFalse(c.SecurityContext.AllowPrivilegeEscalation),
		"no capabilities": privileged || cmp.Equal(c.SecurityContext.Capabilities.Drop,
			[]core.Capability{"ALL"}),
		"locked memory where it probes": privileged || slices.Contains(added(c), "IPC_LOCK") == probes,
		"not root": root || isTrue(pod.SecurityContext.RunAsNonRoot) &&
			*pod.SecurityContext.RunAsUser == 65532,
		"root where it has to be": !root || *pod.SecurityContext.RunAsUser == 0 &&
			pod.SecurityContext.RunAsNonRoot == nil,
		"a bound on memory": !c.Resources.Limits.Memory().IsZero(),
		"the node's name":   hasEnv(c, "RAILSCOPE_NODE_NAME"),
		"nothing of jobs' directories without process": process || !slices.ContainsFunc(pod.Volumes,
			func(v core.Volume) bool {
				return v.HostPath != nil && (strings.HasPrefix(v.HostPath.Path,
					"/var/lib/kubelet") || strings.HasPrefix(v.HostPath.Path, "/var/log/pods"))
			}),
	} {
		if !is {
			t.Errorf("not so: %s", what)
		}
	}
	for name := range c.Resources.Limits {
		if name == "nvidia.com/gpu" || name == "amd.com/gpu" {
			t.Error("it takes a GPU")
		}
	}
	for _, sa := range all[core.ServiceAccount](list) {
		if !isFalse(sa.AutomountServiceAccountToken) || pod.ServiceAccountName != sa.Name {
			t.Errorf("ServiceAccount %s: token %v, pods use %q", sa.Name, sa.AutomountServiceAccountToken,
				pod.ServiceAccountName)
		}
	}
	for _, ns := range all[core.Namespace](list) {
		if ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
			t.Errorf("namespace %s would not admit the pods", ns.Name)
		}
	}
}

// checkPorts: flags, configuration, container, Service, PodMonitor and health checks use the same ports.
func checkPorts(t *testing.T, list []object, pod core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	numbers := map[string]int32{}
	for _, p := range c.Ports {
		numbers[p.Name] = p.ContainerPort
	}
	if want := fmt.Sprintf("--web.listen-address=:%d", numbers["metrics"]); !slices.Contains(c.Args, want) {
		t.Errorf("no %s in %q", want, c.Args)
	}
	checkHealth(t, list, c)
	for _, s := range scrapes(list) {
		if s.port != "metrics" {
			t.Errorf("scraped at %v", s.port)
		}
	}
	var config struct {
		Probe struct {
			Listen string
			Peers  []string
		}
	}
	if err := sigsyaml.Unmarshal([]byte(configuration(t, list)), &config); err != nil {
		t.Fatal(err)
	}
	services := slices.DeleteFunc(all[core.Service](list), func(s *core.Service) bool {
		return s.Spec.Ports[0].Name == "metrics"
	})
	if numbers["probe"] == 0 {
		if len(services) > 0 || config.Probe.Listen != "" {
			t.Errorf("%d services, it listens on %q, and has no port", len(services), config.Probe.Listen)
		}
		return
	}
	s := only[core.Service](t, list)
	port := s.Spec.Ports[0]
	peer := fmt.Sprintf("dns+%s:%d", s.Name, port.Port)
	if s.Spec.ClusterIP != "None" || !s.Spec.PublishNotReadyAddresses || port.Port != numbers["probe"] ||
		port.TargetPort.StrVal != "probe" {
		t.Errorf("the Service is %+v", s.Spec)
	}
	if config.Probe.Listen != fmt.Sprintf(":%d", numbers["probe"]) || !slices.Contains(config.Probe.Peers, peer) {
		t.Errorf("it listens on %q and asks %q, want port %d and %s", config.Probe.Listen, config.Probe.Peers,
			numbers["probe"], peer)
	}
}

// checkHealth: the kubelet probes the metrics port, by TLS if the web configuration has it, and only connects if a
// request would be refused.
func checkHealth(t *testing.T, list []object, c core.Container) {
	t.Helper()
	web := webConfig(t, list)
	for path, p := range map[string]*core.Probe{"/-/healthy": c.LivenessProbe, "/-/ready": c.ReadinessProbe} {
		if len(web.Users) > 0 || strings.HasPrefix(web.TLS.ClientAuthType, "Require") {
			if p.HTTPGet != nil || p.TCPSocket == nil || p.TCPSocket.Port.StrVal != "metrics" {
				t.Errorf("%s is asked for, and the web configuration would refuse: %+v", path, p.ProbeHandler)
			}
			continue
		}
		want := core.URIScheme("")
		if web.TLS.CertFile != "" {
			want = core.URISchemeHTTPS
		}
		if g := p.HTTPGet; g == nil || g.Port.StrVal != "metrics" || g.Path != path || g.Scheme != want {
			t.Errorf("health: %+v, want %s by %q", g, path, want)
		}
	}
}

// web is the part of a web configuration that is checked.
type web struct {
	TLS struct {
		CertFile       string `json:"cert_file"`
		ClientAuthType string `json:"client_auth_type"`
	} `json:"tls_server_config"`
	Users map[string]string `json:"basic_auth_users"`
}

// webConfig returns the web configuration that pods mount; the zero value if there is none.
func webConfig(t *testing.T, list []object) (w web) {
	t.Helper()
	for _, s := range all[core.Secret](list) {
		if err := sigsyaml.Unmarshal([]byte(s.StringData["web-config.yml"]), &w); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// checkVolumes: every volume is mounted, every mount has its volume, and files that the configuration names exist.
func checkVolumes(t *testing.T, list []object, pod core.PodSpec) {
	t.Helper()
	var volumes, mounted, paths []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			configMap(t, list, v.ConfigMap.Name)
		}
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o400) {
			t.Errorf("the token is for more than root: %v", v.Secret.DefaultMode)
		}
		if p := v.Projected; p != nil &&
			(p.DefaultMode == nil || *p.DefaultMode != 0o440 || pod.SecurityContext.FSGroup == nil &&
				*pod.SecurityContext.RunAsUser != 0) {
			t.Errorf("the web configuration cannot be read, or by more than the pod: %v, %+v", p.DefaultMode,
				pod.SecurityContext)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted, paths = append(mounted, m.Name), append(paths, m.MountPath)
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s would never be replaced: of a subPath the kubelet keeps the first", m.MountPath)
		}
		if !m.ReadOnly && m.Name != "infiniband" && m.Name != "state" {
			t.Errorf("%s can be written", m.MountPath)
		}
	}
	slices.Sort(volumes)
	slices.Sort(mounted)
	if diff := cmp.Diff(volumes, mounted); diff != "" {
		t.Errorf("volumes, and mounts (+): %s", diff)
	}
	if token := regexp.MustCompile(`token_file: (\S+)/token\b`).FindStringSubmatch(configuration(t,
		list)); token != nil && !slices.Contains(paths, token[1]) {
		t.Errorf("the token should be in %s", token[1])
	}
}

// scrape holds the scrape settings of a PodMonitor or a ServiceMonitor.
type scrape struct {
	port, timeout             string
	relabel                   []monitoring.RelabelConfig
	honorLabels               bool
	https, tls, password      bool
	native, extra, exclusions bool // native histograms, and additional relabelings, including those of samples
}

func scrapes(list []object) (found []scrape) {
	https := func(s *monitoring.Scheme) bool { return s != nil && s.String() == "https" }
	native := func(p *bool) bool { return p != nil && *p }
	for _, m := range all[monitoring.PodMonitor](list) {
		for _, e := range m.Spec.PodMetricsEndpoints {
			port := ""
			if e.Port != nil {
				port = *e.Port
			}
			found = append(found, scrape{port, string(e.ScrapeTimeout), e.RelabelConfigs, e.HonorLabels,
				https(e.Scheme), e.TLSConfig != nil, e.BasicAuth != nil, native(m.Spec.ScrapeNativeHistograms),
				len(e.RelabelConfigs) > 3, len(e.MetricRelabelConfigs) > 0})
		}
	}
	for _, m := range all[monitoring.ServiceMonitor](list) {
		for _, e := range m.Spec.Endpoints {
			found = append(found, scrape{e.Port, string(e.ScrapeTimeout), e.RelabelConfigs, e.HonorLabels,
				https(e.Scheme), e.TLSConfig != nil, e.BasicAuth != nil, native(m.Spec.ScrapeNativeHistograms),
				len(e.RelabelConfigs) > 3, len(e.MetricRelabelConfigs) > 0})
		}
	}
	return found
}

// mergeLabels returns a overridden by b.
func mergeLabels(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// checkMonitoring: pods are scraped as rules and dashboards require, and both are those of this repository.
func checkMonitoring(t *testing.T, list []object) {
	t.Helper()
	for _, s := range scrapes(list) {
		got, err := json.Marshal(s.relabel[:min(len(s.relabel), 3)])
		if err != nil {
			t.Fatal(err)
		}
		const want = `[{"sourceLabels":["__meta_kubernetes_pod_node_name"],"targetLabel":"instance"},` +
			`{"targetLabel":"job","replacement":"railscope"},{"regex":"pod|container","action":"labeldrop"}]`
		if string(got) != want || s.honorLabels {
			t.Errorf("relabelled by %s, want %s", got, want)
		}
		w := webConfig(t, list)
		if s.https != (w.TLS.CertFile != "") || s.tls != (w.TLS.CertFile != "") {
			t.Errorf("scraped by https %v, TLS %v, and the web configuration has TLS %+v", s.https, s.tls, w.TLS)
		}
		if s.password != (len(w.Users) > 0) {
			t.Errorf("scraped with a password %v, and the web configuration has users %v", s.password, w.Users)
		}
	}
	for _, r := range all[monitoring.PrometheusRule](list) {
		var source monitoring.PrometheusRule
		read(t, "deploy/rules/prometheusrule.yaml", &source)
		if diff := cmp.Diff(source.Spec, r.Spec); diff != "" || len(r.Spec.Groups) == 0 {
			t.Errorf("the rules are not those of deploy/rules: %s", diff)
		}
	}
	for _, cm := range all[core.ConfigMap](list) {
		for file, got := range cm.Data {
			if file == "railscope.yml" {
				continue
			}
			want, err := os.ReadFile(filepath.Join(root, "dashboards/provisioning", file))
			if err != nil || strings.TrimSpace(got) != strings.TrimSpace(string(want)) ||
				cm.Labels["grafana_dashboard"] == "" {
				t.Errorf("%s in %s, labels %v, is not the dashboard (%v)", file, cm.Name, cm.Labels, err)
			}
		}
	}
	if n := len(all[core.ConfigMap](list)); n != 1 && n != 4 {
		t.Errorf("%d ConfigMaps, want the configuration and three dashboards or none", n)
	}
}

// read parses a file of the repository strictly.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err == nil {
		err = sigsyaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// configuration returns the pods' railscope.yml.
func configuration(t *testing.T, list []object) string {
	t.Helper()
	for _, v := range only[apps.DaemonSet](t, list).Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			return configMap(t, list, v.ConfigMap.Name).Data["railscope.yml"]
		}
	}
	t.Fatal("no configuration")
	return ""
}

func configMap(t *testing.T, list []object, name string) *core.ConfigMap {
	t.Helper()
	for _, cm := range all[core.ConfigMap](list) {
		if cm.Name == name {
			return cm
		}
	}
	t.Fatalf("no ConfigMap %s", name)
	return nil
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

func hasPort(c core.Container, name string) bool {
	return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
}

func hasEnv(c core.Container, name string) bool {
	return slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
}

// runs reports whether a flag without a value, or its variable, is set.
func runs(c core.Container, flag string) bool {
	variable := "RAILSCOPE_" + strings.ToUpper(strings.ReplaceAll(flag, ".", "_"))
	return slices.Contains(c.Args, "--"+flag) || slices.Contains(c.Env, core.EnvVar{Name: variable, Value: "true"})
}

func added(c core.Container) []core.Capability {
	if c.SecurityContext.Capabilities == nil {
		return nil
	}
	return c.SecurityContext.Capabilities.Add
}

func rdmaResource(c core.Container) (name string, ok bool) {
	for name := range c.Resources.Limits {
		if strings.HasPrefix(string(name), "rdma/") {
			return string(name), true
		}
	}
	return "", false
}
