// cAdvisor for tests, as its own command and the kubelet put it together: the manager with its plug-ins, and the
// collector for Prometheus. The module of cAdvisor's own command cannot be had from the Go module proxy; its library can.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/google/cadvisor/cache/memory"
	"github.com/google/cadvisor/container"
	_ "github.com/google/cadvisor/container/podman/install"
	info "github.com/google/cadvisor/info/v1"
	v2 "github.com/google/cadvisor/info/v2"
	"github.com/google/cadvisor/manager"
	"github.com/google/cadvisor/metrics"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

// What cAdvisor's own command leaves out unless it is asked for.
var disabled = container.MetricSet{
	container.MemoryNumaMetrics:              struct{}{},
	container.NetworkTcpUsageMetrics:         struct{}{},
	container.NetworkUdpUsageMetrics:         struct{}{},
	container.NetworkAdvancedTcpUsageMetrics: struct{}{},
	container.ProcessSchedulerMetrics:        struct{}{},
	container.ProcessMetrics:                 struct{}{},
	container.HugetlbUsageMetrics:            struct{}{},
	container.ReferencedMemoryMetrics:        struct{}{},
	container.CPUTopologyMetrics:             struct{}{},
	container.ResctrlMetrics:                 struct{}{},
	container.CPUSetMetrics:                  struct{}{},
}

// kubeletLabels are those that the kubelet gives its containers: of all that a runtime reports, pod, namespace and
// container (kubernetes/pkg/kubelet/server/server.go, containerPrometheusLabelsFunc).
func kubeletLabels(one *info.ContainerInfo) map[string]string {
	labels := one.Spec.Labels
	name := ""
	if len(one.Aliases) > 0 {
		name = one.Aliases[0]
	}
	return map[string]string{
		metrics.LabelID:    one.Name,
		metrics.LabelName:  name,
		metrics.LabelImage: one.Spec.Image,
		"pod":              labels["io.kubernetes.pod.name"],
		"namespace":        labels["io.kubernetes.pod.namespace"],
		"container":        labels["io.kubernetes.container.name"],
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address and port")
	kubelet := flag.Bool("kubelet", false, "metrics and labels as the kubelet's")
	flag.Var(&disabled, "disable_metrics", "metrics to be left out, with commas between")
	flag.Parse()
	labels := metrics.DefaultContainerLabels
	if *kubelet {
		labels = kubeletLabels
		disabled[container.PerCpuUsageMetrics] = struct{}{}
	}
	included := container.AllMetrics.Difference(disabled)
	watching, err := manager.New(memory.New(2*time.Minute, nil), sysfs.NewRealSysFs(), manager.HousekeepingConfigFlags,
		included, http.DefaultClient, []string{""}, []string{""}, "", 0)
	if err != nil {
		log.Fatalf("no manager: %v", err)
	}
	if err := watching.Start(); err != nil {
		log.Fatalf("the manager does not start: %v", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewPrometheusCollector(watching, labels, included, clock.RealClock{},
		v2.RequestOptions{IdType: v2.TypeName, Count: 1, Recursive: true}))
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	log.Fatal(http.ListenAndServe(*listen, nil))
}
