"""`atollctl web`: pages over the views that commands print, read-only and with the rights of their viewer."""
