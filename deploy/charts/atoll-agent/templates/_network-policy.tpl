{{/* Generated; to change it, edit its source and run: make generate */}}
{{/*
Flows of one process. root; name; called: ports that API servers call, whose addresses no selector can name.
Agents call the host's API server, and no process of the host calls a member.
*/}}
{{- define "atoll.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
podSelector:
  matchLabels: {{- include "atoll.selector" . | nindent 4 }}
policyTypes: [Ingress, Egress]
ingress:
{{- range .called }}
# The API server; of pages the proxy before them.
- ports:
  - {protocol: TCP, port: {{ . }}}
{{- end }}
# Prometheus; probes of a kubelet are always let in.
- from: {{- toYaml $policy.metricsFrom | nindent 2 }}
  ports:
  - {protocol: TCP, port: health}
egress:
# Names.
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
# API servers, and a proxy before them.
- ports:
  {{- range $policy.apiServerPorts }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
{{- with $policy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
