package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// always gives one answer without a network.
type always string

func (a always) RoundTrip(request *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, request.Body)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

func replica(uid string) *v1.Pod {
	controller := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + uid, Namespace: "prod", UID: "0c8f5f0e-7a4b-4b0e-9a35-5a1d3c3d9e10",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"},
			Annotations:     map[string]string{"cotenant.io/workload": "web-1k", "cotenant.io/min-throughput-ratio": "0.9"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-6d4cf56db6", Controller: &controller}},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "web", Image: "registry.example/web:1", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("4Gi")},
		}}}},
	}
}

// A question about a pod and 1,000 nodes, 100 of which are full, that says where 20 pods went; without the network.
func BenchmarkAQuestionAbout1000Nodes(b *testing.B) {
	failed, scores, nodes := map[string]string{}, map[string]int64{}, make([]string, 1000)
	for number := range nodes {
		nodes[number] = fmt.Sprintf("node-%04d.example", number)
		if number%10 == 0 {
			failed[nodes[number]] = "db-1 would fall below its limit: 0.71 of its speed alone, and it must keep 0.9"
		} else {
			scores[nodes[number]] = int64(number % 101)
		}
	}
	body, err := json.Marshal(map[string]any{
		"FailedNodes": failed, "FailedAndUnresolvableNodes": map[string]string{}, "Scores": scores, "Error": "", "PerNode": true, "Others": false,
	})
	if err != nil {
		b.Fatal(err)
	}
	args := &Args{URL: "http://127.0.0.1:1", Timeout: metav1.Duration{Duration: time.Minute}, Rest: metav1.Duration{Duration: time.Second}}
	asking, err := newClient(args)
	if err != nil {
		b.Fatal(err)
	}
	asking.http.Transport = always(body)
	p := &Plugin{client: asking, soon: time.Hour, ctx: context.Background()}
	b.ReportAllocs()
	for b.Loop() {
		for number := range 20 {
			p.ledger.place(slim(replica(fmt.Sprint(number))), nodes[number])
		}
		found, err := p.tell(context.Background(), &question{Pod: slim(replica("a")), NodeNames: nodes})
		if err != nil || len(found.Scores) != 900 {
			b.Fatal(found, err)
		}
	}
}

// What every pod that asks costs, also where pods alike share an answer.
func BenchmarkTheKindOfAPod(b *testing.B) {
	pod := replica("a")
	b.ReportAllocs()
	for b.Loop() {
		if kindOf(slim(pod)) == "" {
			b.Fatal("it is of no kind")
		}
	}
}
