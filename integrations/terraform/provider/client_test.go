package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terraform-provider-cotenant/rest"
)

const token = "cot_0123456789abcdef_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// service answers each question by the next of these handlers, and the last one for good.
func service(t *testing.T, handlers ...http.HandlerFunc) (*httptest.Server, *int) {
	t.Helper()
	t.Setenv("COTENANT_TOKEN", "")
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		handler := handlers[min(asked, len(handlers)-1)]
		asked++
		handler(writer, request)
	}))
	t.Cleanup(server.Close)
	return server, &asked
}

func says(status int, body string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "application/json")
		if status != http.StatusOK {
			writer.Header().Set("Content-Type", "application/problem+json")
		}
		writer.WriteHeader(status)
		_, _ = io.WriteString(writer, body)
	}
}

func ask(t *testing.T, server *httptest.Server, tokenFile string) ([]rest.Recommendation, error) {
	t.Helper()
	asking, err := newClient(server.URL, tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	return asking.place(context.Background(), rest.BatchBody{Instances: []rest.NewInstance{{Id: "web-1"}}})
}

func tokenIn(t *testing.T, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestABusyServiceIsAskedAgain(t *testing.T) {
	server, asked := service(t, says(503, ""), says(429, ""), says(200, `{"answers": [{"candidates": [{"host": "h1"}]}]}`))
	answers, err := ask(t, server, "")
	if err != nil || answers[0].Candidates[0].Host != "h1" || *asked != 3 {
		t.Fatal(answers, err, *asked)
	}
}

func TestWhatStaysBusyIsToldInItsOwnWords(t *testing.T) {
	server, asked := service(t, says(503, `{"detail": "the database does not answer", "code": "storage.unavailable"}`))
	_, err := ask(t, server, "")
	if err == nil || err.Error() != "the database does not answer (storage.unavailable)" || *asked != 4 {
		t.Fatal(err, *asked)
	}
}

func TestARefusalIsNotAskedAgainAndNamesItsField(t *testing.T) {
	server, asked := service(t, says(422, `{"detail": "is too large", "code": "input.invalid", "field": "instances.0.vcpus"}`))
	_, err := ask(t, server, "")
	var problem *refused
	if !errors.As(err, &problem) || err.Error() != "instances.0.vcpus: is too large (input.invalid)" || *asked != 1 {
		t.Fatal(err, *asked)
	}
}

func TestWhatIsNoServiceIsToldSo(t *testing.T) {
	for body, status := range map[string]int{"<html>": 200, `{"answers": []}`: 200, "nothing here": 404} {
		server, _ := service(t, says(status, body))
		if answers, err := ask(t, server, ""); err == nil {
			t.Errorf("%q was taken for %v", body, answers)
		}
	}
}

func TestTheTokenIsReadForEveryQuestionAndFollowsNoRedirect(t *testing.T) {
	elsewhere, reached := service(t, says(200, ""))
	var sent []string
	server, _ := service(t, func(writer http.ResponseWriter, request *http.Request) {
		sent = append(sent, request.Header.Get("Authorization"))
		http.Redirect(writer, request, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	file := tokenIn(t, 0o640)
	asking, err := newClient(server.URL, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(token+"2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := asking.place(context.Background(), rest.BatchBody{Instances: []rest.NewInstance{{Id: "web-1"}}}); err == nil {
		t.Fatal("a redirect was taken for an answer")
	}
	if len(sent) != 1 || sent[0] != "Bearer "+token+"2" || *reached != 0 {
		t.Fatal(sent, *reached)
	}
}

func TestUnsafeTokensAndAddressesAreRefused(t *testing.T) {
	t.Setenv("COTENANT_TOKEN", "")
	t.Setenv("COTENANT_TOKEN_OVER_HTTP", "")
	for _, one := range []struct{ url, file, says string }{
		{"https://cotenant.example", tokenIn(t, 0o644), "chmod 640"},
		{"https://cotenant.example", tokenIn(t, 0o660), "chmod 640"},
		{"https://cotenant.example", "/does/not/exist", "token_file"},
		{"http://cotenant.example", tokenIn(t, 0o600), "use https"},
		{"https://me:secret@cotenant.example", "", "token_file"},
		{"cotenant.example:8080", "", "no URL"},
	} {
		_, err := newClient(one.url, one.file)
		if err == nil || !strings.Contains(err.Error(), one.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s with %s: %v", one.url, one.file, err)
		}
	}
	t.Setenv("COTENANT_TOKEN", "two words")
	if _, err := newClient("https://cotenant.example", ""); err == nil || strings.Contains(err.Error(), "two words") {
		t.Error(err)
	}
}
