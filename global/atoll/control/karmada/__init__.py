"""Control on a Karmada: Karmada's controllers make bindings and Works, Atoll decides where and when they run.

Bindings of policies with `schedulerName: atoll` get a gang (`adoption`), members' summaries become ClusterCapacities
(`summaries`), and what Karmada collects of members becomes the conditions that the dispatcher goes by (`progress`).
"""
