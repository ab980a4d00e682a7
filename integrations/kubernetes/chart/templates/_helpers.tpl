{{- define "cotenant.name" -}}
{{- if contains "cotenant" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-cotenant" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels of one part: dict "root" $ "part" "service". */}}
{{- define "cotenant.selector" -}}
app.kubernetes.io/name: cotenant
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "cotenant.labels" -}}
{{ include "cotenant.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "cotenant.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "cotenant.url" -}}
http://{{ include "cotenant.name" . }}.{{ .Release.Namespace }}:{{ .Values.service.port }}
{{- end }}

{{- define "cotenant.tokens" -}}
{{ .Values.tokens.existingSecret | default (printf "%s-tokens" (include "cotenant.name" .)) }}
{{- end }}

{{- define "cotenant.nobody" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "cotenant.tight" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "cotenant.database" -}}
{{- with .Values.service.database.existingSecret }}
- name: COTENANT_DATABASE
  valueFrom: {secretKeyRef: {name: {{ . }}, key: url}}
{{- end }}
{{- end }}

{{/* The account's own token, which only the sync's container sees. */}}
{{- define "cotenant.account" -}}
- name: account
  projected:
    sources:
      - {serviceAccountToken: {path: token, expirationSeconds: 3600}}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}

{{- define "cotenant.sync" -}}
- name: sync
  image: {{ include "cotenant.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [sync, kubernetes, --watch]
  {{- with include "cotenant.database" . }}
  env: {{- . | nindent 4 }}
  {{- end }}
  resources: {{- toYaml .Values.sync.resources | nindent 4 }}
  securityContext: {{- include "cotenant.tight" . | nindent 4 }}
  volumeMounts:
    - {name: state, mountPath: /var/lib/cotenant}
    - {name: tmp, mountPath: /tmp}
    - {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
