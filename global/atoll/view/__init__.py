"""What people are shown of the federation: pure functions from objects of the host to rows and documents.

Nothing here asks an API server: who shows it, `atollctl` now and a web page later, gathers the objects. It may import
`atoll.api`, `atoll.model`, `atoll.kinds` and what `atoll.dispatcher` computes. What leaves: `rows` of tables
with their `HEADERS`, documents of plain data (`describe`, `explain`, `summary`), and `text`, a document as a person
reads it. Import a module, not the package: commands load only their own view.
"""
