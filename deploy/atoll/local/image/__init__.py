"""Atoll's own container image, with or without Docker.

`rootfs.py` makes the file system of the image; `deploy/image/Dockerfile` runs it in a build stage, `build.py` on this
machine. `requirements.txt` pins the packages that the processes need (`requirements.py` writes it).
"""
