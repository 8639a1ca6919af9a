"""Facts about animals and things that questions are made of, one a line."""

# animal | group | legs | sound | young
ANIMALS = """
ant|insect|six|-|-
bat|mammal|-|-|pup
bear|mammal|four|growl|cub
bee|insect|six|buzz|-
beetle|insect|six|-|-
butterfly|insect|six|-|-
camel|mammal|four|-|calf
cat|mammal|four|meow|kitten
cow|mammal|four|moo|calf
crocodile|reptile|four|-|hatchling
crow|bird|two|caw|chick
deer|mammal|four|-|fawn
dog|mammal|four|woof|puppy
dolphin|mammal|-|click|calf
donkey|mammal|four|hee-haw|foal
duck|bird|two|quack|duckling
eagle|bird|two|screech|eaglet
elephant|mammal|four|-|calf
fly|insect|six|buzz|-
fox|mammal|four|-|cub
frog|amphibian|four|croak|-
giraffe|mammal|four|-|calf
goat|mammal|four|-|kid
goose|bird|two|honk|gosling
hen|bird|two|cluck|chick
horse|mammal|four|neigh|foal
kangaroo|mammal|-|-|joey
leopard|mammal|four|-|cub
lion|mammal|four|roar|cub
lizard|reptile|four|-|hatchling
mosquito|insect|six|-|-
mouse|mammal|four|squeak|pup
newt|amphibian|four|-|-
ostrich|bird|two|-|chick
owl|bird|two|hoot|owlet
parrot|bird|two|-|chick
penguin|bird|two|-|chick
pig|mammal|four|oink|piglet
pigeon|bird|two|coo|-
rabbit|mammal|four|-|-
salmon|fish|-|-|-
scorpion|arachnid|eight|-|-
seal|mammal|-|bark|pup
shark|fish|-|-|pup
sheep|mammal|four|baa|lamb
snake|reptile|-|hiss|hatchling
sparrow|bird|two|chirp|chick
spider|arachnid|eight|-|-
swan|bird|two|-|cygnet
tiger|mammal|four|roar|cub
toad|amphibian|four|croak|-
trout|fish|-|-|-
turkey|bird|two|gobble|-
turtle|reptile|four|-|hatchling
wasp|insect|six|buzz|-
whale|mammal|-|-|calf
wolf|mammal|four|howl|pup
zebra|mammal|four|-|foal
"""

# number | French | Spanish | German
NUMBERS = """
two|deux|dos|zwei
three|trois|tres|drei
four|quatre|cuatro|vier
five|cinq|cinco|fünf
six|six|seis|sechs
seven|sept|siete|sieben
eight|huit|ocho|acht
nine|neuf|nueve|neun
ten|dix|diez|zehn
eleven|onze|once|elf
twelve|douze|doce|zwölf
sixteen|seize|dieciséis|sechzehn
twenty|vingt|veinte|zwanzig
sixty|soixante|sesenta|sechzig
"""

# what has them | what is counted | how many
COUNTS = """
a week|days|seven
a year|months|twelve
a year|seasons|four
a triangle|sides|three
a square|corners|four
a pentagon|sides|five
a hexagon|sides|six
a cube|faces|six
a hand|fingers|five
a chessboard|kings|two
a football team|players|eleven
a bicycle|wheels|two
a tricycle|wheels|three
a car|wheels|four
a minute|seconds|sixty
an hour|minutes|sixty
a violin|strings|four
a dozen|eggs|twelve
an octopus|arms|eight
a rainbow|colors|seven
a face|eyes|two
a decade|years|ten
"""

# group | French | Spanish | German | its members
GROUPS = """
mammal|C'est un mammifère.|Es un mamífero.|Das ist ein Säugetier.|
bird|C'est un oiseau.|Es un ave.|Das ist ein Vogel.|
fish|C'est un poisson.|Es un pez.|Das ist ein Fisch.|
insect|C'est un insecte.|Es un insecto.|Das ist ein Insekt.|
reptile|C'est un reptile.|Es un reptil.|Das ist ein Reptil.|
amphibian|C'est un amphibien.|Es un anfibio.|Das ist eine Amphibie.|
arachnid|C'est un arachnide.|Es un arácnido.|Das ist ein Spinnentier.|
flower|C'est une fleur.|Es una flor.|Das ist eine Blume.|rose tulip daisy lily orchid violet daffodil poppy
fruit|C'est un fruit.|Es una fruta.|Das ist eine Frucht.|apple pear plum banana mango peach
vegetable|C'est un légume.|Es una verdura.|Das ist ein Gemüse.|carrot onion cabbage turnip leek
tree|C'est un arbre.|Es un árbol.|Das ist ein Baum.|oak pine birch willow maple elm beech
tool|C'est un outil.|Es una herramienta.|Das ist ein Werkzeug.|hammer saw wrench shovel rake
vehicle|C'est un véhicule.|Es un vehículo.|Das ist ein Fahrzeug.|car bus truck van tractor taxi scooter
metal|C'est un métal.|Es un metal.|Das ist ein Metall.|gold silver iron copper zinc tin lead
game|C'est un jeu.|Es un juego.|Das ist ein Spiel.|chess poker tag dominoes checkers
sport|C'est un sport.|Es un deporte.|Das ist eine Sportart.|football tennis golf rugby hockey judo
color|C'est une couleur.|Es un color.|Das ist eine Farbe.|red blue green yellow purple pink
musical instrument|C'est un instrument.|Es un instrumento.|Das ist ein Instrument.|piano violin
drink|C'est une boisson.|Es una bebida.|Das ist ein Getränk.|tea coffee milk juice lemonade cocoa
shape|C'est une forme.|Es una forma.|Das ist eine Form.|circle square triangle cube sphere cone
dance|C'est une danse.|Es un baile.|Das ist ein Tanz.|waltz tango polka salsa samba
"""

# thing | its usual color
COLORED = """
a banana|yellow
a lemon|yellow
a carrot|orange
a pumpkin|orange
a tomato|red
a strawberry|red
a cherry|red
a ruby|red
a fire engine|red
a frog|green
a cucumber|green
an emerald|green
a lime|green
grass|green
spinach|green
the sky|blue
the sea|blue
a sapphire|blue
snow|white
milk|white
salt|white
a swan|white
coal|black
a raven|black
tar|black
chocolate|brown
a chestnut|brown
a flamingo|pink
an eggplant|purple
an elephant|gray
a cloud|white
a pea|green
"""

# color | French | Spanish | German
COLORS = """
yellow|jaune|amarillo|Gelb
orange|orange|naranja|Orange
red|rouge|rojo|Rot
green|vert|verde|Grün
blue|bleu|azul|Blau
white|blanc|blanco|Weiß
black|noir|negro|Schwarz
brown|marron|marrón|Braun
pink|rose|rosa|Rosa
purple|violet|morado|Lila
gray|gris|gris|Grau
"""

# thing | what it is usually made of
MATERIALS = """
a window|glass
a candle|wax
a tire|rubber
a book|paper
a sweater|wool
a coin|metal
a brick|clay
a snowman|snow
cheese|milk
a nail|steel
a towel|cotton
a barrel|wood
an eraser|rubber
an omelet|eggs
a raisin|grapes
a belt|leather
"""
