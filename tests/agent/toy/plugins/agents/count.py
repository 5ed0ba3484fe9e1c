"""Count: raises or lowers one number of the parent, by the seed; often offers the same twice."""

from random import Random

from cake.kinds.proposer import Proposal, Proposer, Request


class Count(Proposer):
    def propose(self, request: Request) -> Proposal | None:
        if request.parent.text.strip() == "stop":
            return None
        numbers = [int(word) for word in request.parent.text.split(",")]
        draw = Random(request.seed).random
        place = int(draw() * len(numbers))
        numbers[place] += 1 if draw() < 0.8 else -1
        return Proposal(",".join(map(str, numbers)) + "\n", f"count:{place}")
