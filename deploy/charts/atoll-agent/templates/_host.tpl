{{/* Credentials of the agent on the host. */}}
{{- define "atoll.hostVolumes" -}}
- name: host
  secret: {secretName: {{ .Values.host.secretName }}}
{{- end }}
{{- define "atoll.hostMounts" -}}
- {name: host, mountPath: /etc/atoll/host, readOnly: true}
{{- end }}
