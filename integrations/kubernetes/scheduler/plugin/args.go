package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Args are the plug-in's own part of a KubeSchedulerConfiguration: pluginConfig, name Cotenant, args.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// URL of the service, such as http://cotenant.cotenant:8080.
	URL string `json:"url"`
	// TokenFile holds a token of scope write. It is read with every question, so that it may be renewed.
	TokenFile string `json:"tokenFile,omitempty"`
	// CAFile holds certificates in PEM that vouch for the service; the system's unless set.
	CAFile string `json:"caFile,omitempty"`
	// Timeout of a question, 300ms unless set. No pod waits longer.
	Timeout metav1.Duration `json:"timeout,omitempty"`
	// Rest is how long the service is not asked after several failures in a row, 5s unless set.
	Rest metav1.Duration `json:"rest,omitempty"`
}

func readArgs(given runtime.Object) (*Args, error) {
	args := &Args{Timeout: metav1.Duration{Duration: 300 * time.Millisecond}, Rest: metav1.Duration{Duration: 5 * time.Second}}
	raw, ok := given.(*runtime.Unknown)
	if !ok || raw == nil {
		return nil, errors.New("the plug-in Cotenant needs pluginConfig with args.url, the address of the service")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(args); err != nil {
		return nil, fmt.Errorf("args of the plug-in Cotenant: %w", err)
	}
	parsed, err := url.Parse(args.URL)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, errors.New("args of the plug-in Cotenant: url is no address such as http://cotenant.cotenant:8080")
	}
	if parsed.User != nil {
		return nil, errors.New("args of the plug-in Cotenant: url holds a password; put the token into a file and its path into tokenFile")
	}
	if args.Timeout.Duration <= 0 || args.Rest.Duration <= 0 {
		return nil, errors.New("args of the plug-in Cotenant: timeout and rest are times above 0, such as 300ms and 5s")
	}
	return args, nil
}
